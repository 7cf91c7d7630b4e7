"""How far the listener is behind what was sent: a model of the client's buffer, corrected by its reports. Pure."""

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
    """One per session, over all its utterances: they queue up in the same loudspeaker.

    Time is assumed to pass at the speed of sound played without a break while there is anything to play.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now = clock()
        self._pieces: deque[_Piece] = deque()
        self._unheard_ms = 0.0  # of all of them
        self.ends_s = self._now  # when all that was sent will have been, or was, heard

    def sent(self, utterance_id: str, duration_ms: float) -> None:
        self._advance()
        if self._pieces and self._pieces[-1].utterance_id == utterance_id:
            self._pieces[-1].sent_ms += duration_ms
            self._pieces[-1].unheard_ms += duration_ms
        else:
            self._pieces.append(_Piece(utterance_id, duration_ms, duration_ms))
        self._unheard_ms += duration_ms
        self.ends_s = self._now + self._unheard_ms / 1000

    def lead_ms(self) -> float:
        """Audio that was sent and not heard yet."""
        self._advance()
        return self._unheard_ms

    def room_ms(self, max_lead_ms: int) -> float:
        """How much may be sent at once."""
        return max(0.0, max_lead_ms - self.lead_ms())

    def unheard_ms(self, utterance_id: str) -> float:
        """Audio of an utterance that was sent and not heard yet."""
        self._advance()
        return sum(piece.unheard_ms for piece in self._pieces if piece.utterance_id == utterance_id)

    def wait_s(self, duration_ms: float, max_lead_ms: int) -> float:
        """How long to hold back a piece so that the lead stays within its limit; 0 = send. 0 as limit = no limit."""
        if max_lead_ms == 0:
            return 0.0
        # A piece longer than the limit may go when everything before it was heard.
        return max(0.0, self.lead_ms() + duration_ms - max(max_lead_ms, duration_ms)) / 1000

    def report(self, utterance_id: str, played_ms: int) -> None:
        """The client says how much of an utterance was heard ("" = of the one in play), and so all of older ones."""
        self._advance()
        ids = [piece.utterance_id for piece in self._pieces]
        if not ids or (utterance_id and utterance_id not in ids):
            return
        while utterance_id and self._pieces[0].utterance_id != utterance_id:
            self._pieces.popleft()
        piece = self._pieces[0]
        piece.unheard_ms = max(0.0, piece.sent_ms - played_ms)
        self._set_end()

    def drop(self, utterance_id: str) -> None:
        """The client threw away what it had buffered of this utterance; "*" = of all."""
        self._advance()
        self._pieces = deque(p for p in self._pieces if utterance_id not in (p.utterance_id, "*"))
        self._set_end()

    def _set_end(self) -> None:
        self._unheard_ms = sum(piece.unheard_ms for piece in self._pieces)
        self.ends_s = self._now + self._unheard_ms / 1000

    def _advance(self) -> None:
        now = self._clock()
        heard_ms, self._now = (now - self._now) * 1000, now
        self._unheard_ms = max(0.0, self._unheard_ms - heard_ms)
        for piece in self._pieces:
            step_ms = min(heard_ms, piece.unheard_ms)
            piece.unheard_ms -= step_ms
            heard_ms -= step_ms
            if heard_ms <= 0:
                break
        # The last piece stays though it was heard: more of its utterance may follow, and reports count from the start.
        while len(self._pieces) > 1 and self._pieces[0].unheard_ms <= 0:
            self._pieces.popleft()
