"""When audio may go out, and how far the engine may be ahead of it.

`Playout` is a model of the listener's buffer, `Pacer` holds audio back by it, and `Credit` tells the engine how much
more it may make. Only `Pacer.wait` waits; all else is pure.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sonorant.engine import EngineInfo
from sonorant.service.audio.writer import AudioSpec

# What the engine may make beyond what may be sent: enough for its largest chunk, and for what conversions hold back.
# Code2Wav relies on it (`IN_HAND_FRAMES`).
AHEAD_FRAMES = 11
MAX_CHUNK_MS = 960  # longest audio of a message; a message costs as much as all other work for a frame
# All utterances send audio at the same ticks, since waking up costs as much as sending.
TICK_S = 0.01
SLACK_S = 0.002  # behind the tick: timers count in milliseconds, and audio must not be early


@dataclass(slots=True)
class _Piece:
    utterance_id: str
    sent_ms: float
    unheard_ms: float


class Playout:
    """The playout of a session, with all its utterances: they queue up for the same loudspeaker.

    The listener is assumed to play without a break while there is anything to play.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now = clock()
        self._pieces: deque[_Piece] = deque()
        self._unheard_ms = 0.0  # of all pieces
        self.ends_s = self._now  # when all that was sent will be heard, or was

    def sent(self, utterance_id: str, duration_ms: float) -> None:
        self.lead_ms()
        if self._pieces and self._pieces[-1].utterance_id == utterance_id:
            self._pieces[-1].sent_ms += duration_ms
            self._pieces[-1].unheard_ms += duration_ms
        else:
            self._pieces.append(_Piece(utterance_id, duration_ms, duration_ms))
        self._unheard_ms += duration_ms
        self.ends_s = self._now + self._unheard_ms / 1000

    def unheard_ms(self, utterance_id: str) -> float:
        """Return how much of an utterance's audio was sent and not heard yet."""
        self.lead_ms()
        return sum(piece.unheard_ms for piece in self._pieces if piece.utterance_id == utterance_id)

    def wait_s(self, duration_ms: float, max_lead_ms: int) -> float:
        """Return how long to hold back a piece so that the lead stays within its limit. `max_lead_ms`: 0 = no limit."""
        if max_lead_ms == 0:
            return 0.0
        # A piece longer than the limit may go once everything before it was heard.
        return max(0.0, self.lead_ms() + duration_ms - max(max_lead_ms, duration_ms)) / 1000

    def report(self, utterance_id: str, played_ms: int) -> None:
        """Correct the model: so much of an utterance was heard ("" = of the one in play), and all of older ones."""
        self.lead_ms()
        ids = [piece.utterance_id for piece in self._pieces]
        if not ids or (utterance_id and utterance_id not in ids):
            return
        while utterance_id and self._pieces[0].utterance_id != utterance_id:
            self._pieces.popleft()
        piece = self._pieces[0]
        piece.unheard_ms = max(0.0, piece.sent_ms - played_ms)
        self._set_end()

    def drop(self, utterance_id: str) -> None:
        """Forget the unheard audio of this utterance ("*" = of all), which the client has dropped."""
        self.lead_ms()
        self._pieces = deque(p for p in self._pieces if utterance_id not in (p.utterance_id, "*"))
        self._set_end()

    def _set_end(self) -> None:
        self._unheard_ms = sum(piece.unheard_ms for piece in self._pieces)
        self.ends_s = self._now + self._unheard_ms / 1000

    def lead_ms(self) -> float:
        """Let the listener hear what it has heard by now. Return how much audio was sent and not heard yet."""
        now = self._clock()
        heard_ms, self._now = (now - self._now) * 1000, now
        self._unheard_ms = max(0.0, self._unheard_ms - heard_ms)
        for piece in self._pieces:
            step_ms = min(heard_ms, piece.unheard_ms)
            piece.unheard_ms -= step_ms
            heard_ms -= step_ms
            if heard_ms <= 0:
                break
        # The last piece stays even if it was heard: its utterance may go on, and reports count from its start.
        while len(self._pieces) > 1 and self._pieces[0].unheard_ms <= 0:
            self._pieces.popleft()
        return self._unheard_ms


class Pacer:
    """Keeps the lead over the listener within `max_lead_ms`; 0 means no limit. The playout is the session's."""

    def __init__(
        self, playout: Playout, max_lead_ms: int, audio: AudioSpec, info: EngineInfo, *, whole: bool = False
    ) -> None:
        """`whole`: nobody hears anything before the end."""
        self.whole = whole
        self._playout = playout
        self._max_lead_ms = max_lead_ms
        self._credit_frames = info.credit_frames
        self._frame_ms = 1000 / (info.frame_rate_hz * audio.speed)
        self._least_frames = AHEAD_FRAMES + math.ceil(audio.frame_duration_ms / self._frame_ms)
        self._changed = asyncio.Event()
        # At most half of the lead, so that a listener with little audio in hand does not run dry while a chunk fills.
        self.max_chunk_ms = min(MAX_CHUNK_MS, max_lead_ms / 2) if max_lead_ms else MAX_CHUNK_MS

    @property
    def lead_s(self) -> float:
        """How much audio of the session the listener still has to hear."""
        return self._playout.lead_ms() / 1000

    def changed(self) -> None:
        """Look again, since the listener's position was corrected: held-back audio may be due."""
        self._changed.set()

    async def wait(self, duration_ms: float) -> None:
        """Wait until this much audio may be sent without exceeding the lead."""
        loop = asyncio.get_running_loop()
        while (wait_s := self._playout.wait_s(duration_ms, self._max_lead_ms)) > 0:
            self._changed.clear()
            due_s = math.ceil((loop.time() + wait_s) / TICK_S) * TICK_S + SLACK_S
            due = loop.call_at(due_s, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                due.cancel()

    def ahead_frames(self) -> int:
        """Return how many frames the engine may be ahead of what was sent."""
        if not self._max_lead_ms:
            return self._credit_frames
        room_ms = max(0.0, self._max_lead_ms - self._playout.lead_ms())
        return min(self._credit_frames, self._least_frames + int(room_ms / self._frame_ms))


class Granted(Protocol):
    def grant(self, num_frames: int) -> None:
        """Allow this many more frames."""


class Credit:
    """The credit of one stream. Audio sent and frames received before its segment do not count."""

    def __init__(self, stream: Granted, allowed_frames: int, audio: AudioSpec, frame_samples: int) -> None:
        """`allowed_frames`: the credit with which the stream was opened. `frame_samples`: at the engine's rate."""
        self._stream = stream
        self._allowed_frames = allowed_frames
        self._frames_per_sample = audio.native_rate_hz * audio.speed / (audio.sample_rate_hz * frame_samples)
        self._samples_before = 0
        self._frames_before = 0

    def begin(self, sent_samples: int, num_frames: int) -> None:
        """Begin to count: the segment's turn has come."""
        self._samples_before = sent_samples
        self._frames_before = num_frames

    def extend(self, sent_samples: int, num_frames: int, ahead_frames: int) -> None:
        """Let the engine be `ahead_frames` ahead of the frames that were sent."""
        taken_frames = int((sent_samples - self._samples_before) * self._frames_per_sample)
        # Padding and rounding may make the sent audio longer than what the engine made.
        taken_frames = min(taken_frames, num_frames - self._frames_before)
        more = taken_frames + ahead_frames - self._allowed_frames
        if more > 0:
            self._stream.grant(more)
            self._allowed_frames += more
