"""How long a session without a server goes on trying. Pure: callers pass the time."""

from sonorant.client.transport.backoff import delays_s

# A session ends with an error if no server speaks for it for this long, unless `Retry.for_s` says otherwise.
RECONNECT_S = 20.0
# And for up to so long while a server answers that it is starting: a large model takes a minute to load.
STARTING_S = 120.0
# A call that lasted this long was no failed attempt: its loss begins another outage.
STABLE_S = 1.0


class Outage:
    """The time from the first loss until a server speaks for the session again. Servers that take the session and are
    lost at once, or refuse its utterances, prolong neither the time nor the pace of the attempts."""

    def __init__(self, now_s: float, for_s: float) -> None:
        self.lost_s = now_s  # the latest loss
        self.deadline_s = now_s + for_s
        self._for_s, self._latest_s = for_s, now_s + max(for_s, STARTING_S)
        self.connected_s: float | None = None  # since when a server has the session, if one has
        self._delays = delays_s()

    def goes_on(self, now_s: float) -> bool:
        """Return whether a loss at this time belongs to this outage, and not to another one."""
        return self.connected_s is None or now_s - self.connected_s < STABLE_S

    def wait_for_start(self, now_s: float) -> None:
        """A server has answered that it is starting: the time to go on trying begins again."""
        self.deadline_s = min(now_s + self._for_s, self._latest_s)

    def is_over(self, now_s: float) -> bool:
        """Return whether the next attempt would come too late."""
        return now_s >= self.deadline_s

    def next_delay_s(self) -> float:
        return next(self._delays)
