"""Decides how long to wait for a silent server. Pure: callers pass the time.

The server of a session promises to send something at least every `max_silence_ms` while an utterance is open. While the
listener still has audio, there is no need to leave it. After that, an alarm comes as soon as the promise is surely
broken. Each alarm, right or wrong, doubles the grace beyond the promise, so that busy servers or a network that stalls
do not make all sessions move again and again.
"""

import random
from collections import deque

# The silence to ask for, as a part of the lead. A chunk is at most half of the lead, so flowing audio is sign enough.
SILENCE_OF_LEAD = 0.6
MIN_SILENCE_MS, MAX_SILENCE_MS = 150, 1200
DEFAULT_LEAD_MS = 2000  # as in the contract
GRACE_S = 0.2  # beyond the promise, for the network and for a server that is only busy
RESERVE_S = 0.5  # how much audio the listener should have left when the search for another server begins
MEMORY_S = 30.0  # older alarms do not count any more
MOST_DOUBLINGS = 4
MOST_CALLS = 4  # at the same time, at the first alarm; half as many at each that follows
# A server that resumes a session answers at once. It is given four times as long as the quickest answer took, within
# limits.
ANSWER_TIMES = 4
MIN_ANSWER_S, MAX_ANSWER_S = 0.1, 0.4
FIRST_ANSWER_S = 2.0  # a new session may have to wait for many others


def silence_to_ask_ms(max_lead_ms: int | None) -> int:
    lead_ms = max_lead_ms or DEFAULT_LEAD_MS  # without a limit, chunks are as long as with the default
    return max(MIN_SILENCE_MS, min(round(SILENCE_OF_LEAD * lead_ms), MAX_SILENCE_MS))


class Patience:
    def __init__(self, spread: float | None = None) -> None:
        """`spread`: 0 to 1, so that sessions of one server do not all give it up in the same instant; None = random."""
        self.max_silence_s = 0.0  # as the server promised; 0 = it promised nothing
        self._spread = random.random() if spread is None else spread
        self._alarms_s: deque[float] = deque()
        self._heard_until_s = 0.0  # when the listener will have heard all audio received so far

    def audio(self, now_s: float, audio_s: float) -> None:
        self._heard_until_s = max(self._heard_until_s, now_s) + audio_s

    def dropped(self) -> None:
        """The audio that was received and not heard yet has been dropped."""
        self._heard_until_s = 0.0

    def alarm(self, now_s: float) -> None:
        self._alarms_s.append(now_s)

    def until_s(self, silent_since_s: float, now_s: float) -> float:
        """When to give up a server that has been silent since `silent_since_s`."""
        broken_s = silent_since_s + self.max_silence_s + GRACE_S * self._factor(now_s) * (1 + self._spread / 4)
        return max(broken_s, self._heard_until_s - RESERVE_S)

    def answer_s(self, now_s: float, quickest_s: float) -> float:
        """How long a server may take to answer a session that it resumes; `quickest_s`: the quickest answer so far."""
        return max(MIN_ANSWER_S, min(ANSWER_TIMES * quickest_s, MAX_ANSWER_S)) * self._factor(now_s)

    def most_calls(self, now_s: float) -> int:
        """How many calls may be open at the same time in search of another server."""
        return max(1, MOST_CALLS // self._factor(now_s))

    def _factor(self, now_s: float) -> int:
        while self._alarms_s and self._alarms_s[0] < now_s - MEMORY_S:
            self._alarms_s.popleft()
        return int(2 ** min(len(self._alarms_s), MOST_DOUBLINGS))
