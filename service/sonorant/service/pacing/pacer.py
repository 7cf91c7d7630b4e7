"""Decides when the audio of one utterance may go out, and how far the engine may be ahead of it."""

import asyncio
import math

from sonorant.engine import EngineInfo
from sonorant.service.audio.writer import AudioSpec
from sonorant.service.pacing.playout import Playout

# What the engine may make beyond what may be sent: enough for its largest chunk, and for what conversions hold back.
# Code2Wav relies on it (`IN_HAND_FRAMES`).
AHEAD_FRAMES = 11
MAX_CHUNK_MS = 960  # longest audio of a message; a message costs as much as all other work for a frame
# All utterances send audio at the same ticks, since waking up costs as much as sending.
TICK_S = 0.01
SLACK_S = 0.002  # behind the tick: timers count in milliseconds, and audio must not be early


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
