"""The children of this process."""

from contextlib import suppress
from pathlib import Path


def child_pids() -> set[int]:
    """Those that have ended, and that nobody has waited for, included."""
    pids: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            pids.update(map(int, (task / "children").read_text().split()))
    return pids
