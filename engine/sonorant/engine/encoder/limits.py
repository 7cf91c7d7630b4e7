"""What this process may take from the machine: less processor time than those that speak, bounded memory, and no room
in the log for what libraries have to say about uploads."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NICENESS = 15  # at most a tenth of the share of a process that speaks, where both want the same core


def lower_priority() -> None:
    os.nice(NICENESS)


@contextmanager
def memory_limit(num_bytes: int) -> Iterator[None]:
    """Inside, allocations beyond `num_bytes` more than now raise MemoryError instead of taking them from others."""
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _data_bytes() + num_bytes
    limits = [wanted, *(limit for limit in (before, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


@contextmanager
def silent_stderr() -> Iterator[None]:
    """Inside, what is written to stderr is dropped, by C libraries, too.

    libmpg123 has a line for each fault of a file, and whoever uploads one could fill the log.
    """
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _data_bytes() -> int:
    """Private memory that this process has and may write to, which is what RLIMIT_DATA counts."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise OSError("the kernel says no VmData in /proc/self/status")
