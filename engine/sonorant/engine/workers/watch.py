"""Notices a worker that hangs: in one step, or without reading its inbox.

Only the time counts in which this process runs itself. So if the whole server is stopped for a while, workers included,
as by a debugger or a suspended machine, no worker is taken to hang.
"""

import time
from collections.abc import Callable

from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.ring import Ring


class WorkerWatch:
    """Watches one worker. Call `complaint` every `interval_s`."""

    def __init__(
        self,
        name: str,
        heartbeat: Heartbeat,
        inbox: Ring,
        timeout_s: float,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._heartbeat = heartbeat
        self._inbox = inbox
        self._timeout_s = timeout_s
        self._longest_turn_s = 2 * interval_s  # between two looks; beyond that this process did not run
        self._clock = clock
        self._looked_s = clock()
        self._busy_since_ns = 0
        self._busy_s = 0.0  # time busy with the same step, while this process ran
        self._consumed_bytes = 0
        self._unread_s = 0.0  # time without progress in its inbox, while this process ran

    def complaint(self) -> str:
        """Return what is wrong, or "" if nothing is."""
        now_s = self._clock()
        turn_s = min(now_s - self._looked_s, self._longest_turn_s)
        self._looked_s = now_s

        busy_since_ns, consumed_bytes = self._heartbeat.busy_since_ns, self._inbox.consumed_bytes
        is_same_step = busy_since_ns and busy_since_ns == self._busy_since_ns
        self._busy_s = self._busy_s + turn_s if is_same_step else 0.0
        is_stuck = self._inbox.used_bytes and consumed_bytes == self._consumed_bytes
        self._unread_s = self._unread_s + turn_s if is_stuck else 0.0
        self._busy_since_ns, self._consumed_bytes = busy_since_ns, consumed_bytes

        if self._busy_s > self._timeout_s:
            return f"the {self._name} worker has been busy with one step for {self._busy_s:.0f} s"
        if self._unread_s > self._timeout_s:
            return f"the {self._name} worker has not read its inbox for {self._unread_s:.0f} s"
        return ""
