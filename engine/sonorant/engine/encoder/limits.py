"""Limits for the processes that decode and encode recordings: less processor time than those that speak, bounded memory
for decoding, and no log lines from libraries about uploads."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NICENESS = 15  # at most a tenth of a speaking process's share when both want the same core


@contextmanager
def memory_limit(num_bytes: int) -> Iterator[None]:
    """Inside, allocating more than `num_bytes` beyond the present memory raises MemoryError."""
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
    """Inside, everything written to stderr is dropped, also from C libraries.

    libmpg123 writes a line for each fault of a file, so an upload could fill the log.
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
    """Return how much private writable memory this process has, which is what RLIMIT_DATA limits."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no line VmData")
