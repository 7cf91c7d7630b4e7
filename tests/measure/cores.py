"""Who had a core and who waited for one, as Linux tells it of each thread (`/proc/PID/task/TID/schedstat`).

On a machine that has other work, too, a wait says little: this tells what of it was computing, and what was waiting for
a core that somebody else had.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

TICKS_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Time:
    """Of a thread, in milliseconds: on a core, and ready to be on one."""

    ran_ms: float = 0.0
    waited_ms: float = 0.0

    def __sub__(self, other: "Time") -> "Time":
        return Time(self.ran_ms - other.ran_ms, self.waited_ms - other.waited_ms)


Threads = Mapping[int, Time]


def set_niceness(process: int, niceness: int) -> None:
    """Of all that is in its session: where Linux gives every session an even share (autogroup), that of a process
    counts within its session only."""
    with suppress(FileNotFoundError):
        Path(f"/proc/{process}/autogroup").write_text(str(niceness))


def threads_of(process: int) -> Threads:
    found = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            ran, waited, _ = (task / "schedstat").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        found[int(task.name)] = Time(int(ran) / 1e6, int(waited) / 1e6)
    return found


def since(before: Threads, now: Threads) -> Threads:
    return {thread: time - before.get(thread, Time()) for thread, time in now.items()}


@dataclass(frozen=True, slots=True)
class Wait:
    """A call, and where the time may have gone: some of these at the same time, so they do not add up."""

    ms: float
    loop: Time  # the thread of the service's event loop
    grpc_waited_ms: float  # of the service's other threads the one that waited longest for a core
    caller_waited_ms: float  # of the caller's own threads

    @classmethod
    def of(cls, ms: float, service: Threads, loop: int, caller: Threads) -> Self:
        waited_ms = max((time.waited_ms for thread, time in service.items() if thread != loop), default=0.0)
        return cls(ms, service[loop], waited_ms, max(time.waited_ms for time in caller.values()))

    def __str__(self) -> str:
        return (
            f"{self.ms:4.0f} ms: the loop computed for {self.loop.ran_ms:.0f} and waited for a core for "
            f"{self.loop.waited_ms:.0f}, another thread of the service up to {self.grpc_waited_ms:.0f}, the caller's "
            f"{self.caller_waited_ms:.0f}"
        )


class Shares:
    """Of the machine's cores, since this was made."""

    def __init__(self, groups: Mapping[str, Callable[[], list[int]]]) -> None:
        """`groups`: processes, by name of the group."""
        self._groups = groups
        self._before = self._now()

    def told(self) -> str:
        now, before = self._now(), self._before
        seconds = now["time"] - before["time"]
        cores = {name: (now[name] - before.get(name, 0.0)) / seconds for name in (*self._groups, "all")}
        others = cores.pop("all") - sum(cores.values())
        return ", ".join(f"{name} {share:.2f}" for name, share in (cores | {"attackers and others": others}).items())

    def _now(self) -> dict[str, float]:
        fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        busy = sum(fields[:3]) + sum(fields[5:7])  # user, nice, system; interrupts
        now = {"time": os.times().elapsed, "all": busy / TICKS_S}
        for name, members in self._groups.items():
            now[name] = sum(map(_used_s, members()))
        return now


def _used_s(process: int) -> float:
    try:
        stat = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(stat[11]) + int(stat[12])) / TICKS_S
