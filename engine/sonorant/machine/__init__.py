"""What its processes may use of this machine: cores, and memory. A container has less of both than the machine.

Linux keeps such limits in control groups, of version 2 (https://docs.kernel.org/admin-guide/cgroup-v2.html) or 1. Those
of a group hold for the groups within it, too.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


def num_cores() -> int:
    """Return how many threads these processes can keep running: one for each core that they may run on, but no more
    than fit into their share of the time of all cores (`docker run --cpus`, `limits.cpu`, `CPUQuota`); at least one."""
    return max(1, min([len(os.sched_getaffinity(0)), *_shares()]))


def free_memory_bytes() -> int:
    """Return how much more memory these processes can take before the kernel has none, or ends one of them."""
    lines = (_PROC / "meminfo").read_text().splitlines()
    (free,) = (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return max(0, min([free, *_rooms()]))


def _shares() -> Iterator[int]:
    """Whole cores whose time each group may use."""
    for group in _groups("cpu"):
        limit = _read(group / "cpu.max").split()
        limit = limit or [_read(group / "cpu.cfs_quota_us").strip(), _read(group / "cpu.cfs_period_us").strip()]
        if all(each.isdecimal() for each in limit):  # else it has none: "max", -1, or there is no such file
            quota, period = map(int, limit)
            yield quota // period


def _rooms() -> Iterator[int]:
    """What is left of each group's memory. Pages of files that nobody needs now make way."""
    for group in _groups("memory"):
        for limit, used, unneeded in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, current = _read(group / limit).strip(), _read(group / used).strip()
            if most.isdecimal() and current.isdecimal():
                stat = dict(line.split() for line in _read(group / "memory.stat").splitlines())
                yield int(most) - int(current) + int(stat.get(unneeded, 0))


def _groups(controller: str) -> Iterator[Path]:
    """The folders of the groups that this process is in. Within a container, the outermost is that of the container,
    whatever `/proc/self/cgroup` says."""
    for line in _read(_PROC / "self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or controller in controllers.split(","):
            folder = _GROUPS if number == "0" else _GROUPS / controller
            parts = [part for part in path.split("/") if part not in ("", "..")]
            yield from (folder.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))


def _read(file: Path) -> str:
    """The content of a file; none of one that is not there, or that may not be read."""
    try:
        return file.read_text()
    except OSError:
        return ""
