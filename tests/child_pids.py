"""The children of this process: their ids and names."""

from contextlib import suppress
from pathlib import Path


def child_pids() -> set[int]:
    """Those that have ended, and that nobody has waited for, included."""
    pids: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            pids.update(map(int, (task / "children").read_text().split()))
    return pids


def child_names() -> set[str]:
    """As ps shows them; those of workers begin with "sonorant-"."""
    names = set()
    for pid in child_pids():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            names.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return names
