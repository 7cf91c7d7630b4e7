"""Decides how long to wait for a silent server. Pure: callers pass the time.

The server of a session promises to send something at least every `max_silence_ms` while an utterance is open. The
client gives it up once it has been silent for longer than that and a grace period, and the listener has little audio
left. That is an alarm. Each alarm, right or wrong, doubles the grace period for a while, so that a busy server or a
slow network does not make all sessions move again and again.
"""

import random
from collections import deque

# The max_silence_ms to ask for, as a share of the lead. A chunk is at most half of the lead, so while audio flows, the
# server need not send anything else.
SILENCE_PER_LEAD = 0.6
MIN_SILENCE_MS, MAX_SILENCE_MS = 150, 1200
DEFAULT_LEAD_MS = 2000  # as in the contract
GRACE_S = 0.2  # beyond `max_silence_ms`, for the network and for a server that is only busy
RESERVE_S = 0.5  # how much audio the listener should have left when the search for another server begins
ALARM_LIFETIME_S = 30.0  # older alarms are forgotten
MAX_DOUBLINGS = 4
MAX_CALLS = 4  # in search of another server, at the same time; each alarm halves it
# How long a call that resumes a session may be without an answer: this many times the fastest answer so far, within
# limits. Servers answer such calls at once.
ANSWER_FACTOR = 4
MIN_ANSWER_S, MAX_ANSWER_S = 0.1, 0.4
FIRST_ANSWER_S = 2.0  # the same for a new session, which may have to queue


def max_silence_for_lead_ms(max_lead_ms: int | None) -> int:
    """Return the `max_silence_ms` to ask a server for."""
    lead_ms = max_lead_ms or DEFAULT_LEAD_MS  # without a limit, chunks are as long as with the default
    return max(MIN_SILENCE_MS, min(round(SILENCE_PER_LEAD * lead_ms), MAX_SILENCE_MS))


class SilenceLimits:
    """The limits of one session, which depend on its alarms and on how much audio its listener has."""

    def __init__(self, spread: float | None = None) -> None:
        """`spread`: 0 to 1, lengthens the grace period by up to a quarter, so that the sessions of one server do not
        all give it up in the same instant; None = random."""
        self.max_silence_s = 0.0  # as the server promised; 0 = it promised nothing
        self._spread = random.random() if spread is None else spread
        self._alarms_s: deque[float] = deque()
        self._heard_until_s = 0.0  # when the listener will have heard all audio received so far

    def add_audio(self, now_s: float, audio_s: float) -> None:
        self._heard_until_s = max(self._heard_until_s, now_s) + audio_s

    def drop_audio(self, now_s: float) -> float:
        """The listener has dropped the audio that was not heard yet. Return how many seconds of it there were."""
        unheard_s = max(0.0, self._heard_until_s - now_s)
        self._heard_until_s = 0.0
        return unheard_s

    def add_alarm(self, now_s: float) -> None:
        self._alarms_s.append(now_s)

    def give_up_at_s(self, silent_since_s: float, now_s: float) -> float:
        """When to give up a server that has been silent since `silent_since_s`."""
        overdue_s = silent_since_s + self.max_silence_s + GRACE_S * self._backoff_factor(now_s) * (1 + self._spread / 4)
        return max(overdue_s, self._heard_until_s - RESERVE_S)

    def max_answer_s(self, now_s: float, fastest_answer_s: float) -> float:
        """How long a server may take to answer a call that resumes a session."""
        return max(MIN_ANSWER_S, min(ANSWER_FACTOR * fastest_answer_s, MAX_ANSWER_S)) * self._backoff_factor(now_s)

    def max_calls(self, now_s: float) -> int:
        """How many calls may be open at the same time in search of another server."""
        return max(1, MAX_CALLS // self._backoff_factor(now_s))

    def _backoff_factor(self, now_s: float) -> int:
        while self._alarms_s and self._alarms_s[0] < now_s - ALARM_LIFETIME_S:
            self._alarms_s.popleft()
        return int(2 ** min(len(self._alarms_s), MAX_DOUBLINGS))
