"""Where the time of a start goes: each process logs one line, with the seconds that every phase of its start took.

The lines of all processes count from the start of the first one, which hands its time on in the environment. What is
done while no start is under way (by tests, say, or for later calls) is not counted.
"""

import ctypes
import logging
import os
import time
from collections import defaultdict
from contextlib import suppress

log = logging.getLogger(__name__)

BEGAN_VARIABLE = "_SONORANT_BEGAN_S"  # by the monotonic clock, which all processes of a machine share
SHORTEST_S = 0.01  # phases that took less are not logged


class _Start:
    def __init__(self, name: str) -> None:
        self.name = name
        began_s = _process_began_s()
        self.server_began_s = float(os.environ.setdefault(BEGAN_VARIABLE, str(began_s)))
        self.began_s = self.last_s = max(began_s, self.server_began_s)  # of one process, too: it is known to 10 ms
        self.phases_s = defaultdict[str, float](float)

    def text(self) -> str:
        began_s, ended_s = self.began_s - self.server_began_s, self.last_s - self.server_began_s
        phases = ", ".join(f"{name} {took_s:.2f}" for name, took_s in self.phases_s.items() if took_s >= SHORTEST_S)
        return f"start of {self.name}, {began_s:.2f} to {ended_s:.2f} s: {phases or 'nothing of note'}"


_under_way: _Start | None = None


def begin(name: str) -> None:
    """The start of this process, `name` in the log, is under way since the process exists."""
    global _under_way
    _under_way = _Start(name)


def phase(name: str) -> None:
    """What was done since the phase before, or since the process exists, is called this."""
    if _under_way is not None:
        now_s = time.monotonic()
        _under_way.phases_s[name] += now_s - _under_way.last_s
        _under_way.last_s = now_s


def end() -> None:
    """The start is over: log where its time went, and give back the memory that only the start needed."""
    global _under_way
    if _under_way is not None:
        log.info("%s", _under_way.text())
        _under_way = None
        _give_memory_back()


def _give_memory_back() -> None:
    """glibc keeps it: a hundred megabytes and more after weights were loaded, and twenty after a vocabulary was."""
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _process_began_s() -> float:
    """By the monotonic clock, to 10 ms."""
    with open("/proc/self/stat") as stat:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - max(0.0, age_s)
