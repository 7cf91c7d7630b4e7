"""How long a silent server is waited for. Pure: it is told the time.

The server of a session promises something at least every `max_silence_ms` while an utterance is open. Nothing is gained
by leaving it while the listener has audio; behind that, an alarm comes as soon as the promise is surely broken. Each
alarm, right or wrong, doubles what is waited beyond the promise: servers that are busy, and a network that stalls, must
not have all their sessions move again and again.
"""

import random
from collections import deque

# To be asked for, of the lead. A chunk is at most half of it, so that audio which flows needs no signs beside it.
SILENCE_OF_LEAD = 0.6
MIN_SILENCE_MS, MAX_SILENCE_MS = 150, 1200
DEFAULT_LEAD_MS = 2000  # the contract's
GRACE_S = 0.2  # for the way, and for a server that is only busy
RESERVE_S = 0.5  # of audio that the listener should have left when the search for another server begins
MEMORY_S = 30.0  # alarms that are older count no more
MOST_DOUBLINGS = 4
MOST_CALLS = 4  # side by side, at the first alarm; half as many at each that follows
# A server that takes up a session greets it at once: several times what the quickest answer took, within limits.
ANSWER_TIMES = 4
MIN_ANSWER_S, MAX_ANSWER_S = 0.1, 0.4
FIRST_ANSWER_S = 2.0  # a newcomer may have to stand behind many others


def silence_to_ask_ms(max_lead_ms: int | None) -> int:
    lead_ms = max_lead_ms or DEFAULT_LEAD_MS  # without a limit a chunk is as long as with that one
    return max(MIN_SILENCE_MS, min(round(SILENCE_OF_LEAD * lead_ms), MAX_SILENCE_MS))


class Patience:
    def __init__(self, spread: float | None = None) -> None:
        """`spread`: 0 to 1; those who share a server do not all lose patience in the same instant."""
        self.max_silence_s = 0.0  # as the server promised; 0 = it did not
        self._spread = random.random() if spread is None else spread
        self._alarms_s: deque[float] = deque()
        self._heard_until_s = 0.0  # when the listener will have heard all that came

    def audio(self, now_s: float, audio_s: float) -> None:
        self._heard_until_s = max(self._heard_until_s, now_s) + audio_s

    def dropped(self) -> None:
        """The listener hears no more of what came."""
        self._heard_until_s = 0.0

    def alarm(self, now_s: float) -> None:
        self._alarms_s.append(now_s)

    def until_s(self, silent_since_s: float, now_s: float) -> float:
        """When a server that has been silent since then is given up."""
        broken_s = silent_since_s + self.max_silence_s + GRACE_S * self._factor(now_s) * (1 + self._spread / 4)
        return max(broken_s, self._heard_until_s - RESERVE_S)

    def answer_s(self, now_s: float, quickest_s: float) -> float:
        """How long a server may take to greet a session that it takes up, where the quickest took that long."""
        return max(MIN_ANSWER_S, min(ANSWER_TIMES * quickest_s, MAX_ANSWER_S)) * self._factor(now_s)

    def most_calls(self, now_s: float) -> int:
        """How many may be made side by side in search of another server."""
        return max(1, MOST_CALLS // self._factor(now_s))

    def _factor(self, now_s: float) -> int:
        while self._alarms_s and self._alarms_s[0] < now_s - MEMORY_S:
            self._alarms_s.popleft()
        return int(2 ** min(len(self._alarms_s), MOST_DOUBLINGS))
