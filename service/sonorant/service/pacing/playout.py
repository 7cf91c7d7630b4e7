"""A model of the listener's buffer: how much audio was sent and not heard yet. Client reports correct it. Pure."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


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
