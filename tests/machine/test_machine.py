"""How many cores and how much memory processes may use, as the kernel's files say it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonorant import machine
from sonorant.machine import free_memory_bytes, num_cores

GIB = 1 << 30
GROUPS = Path("/sys/fs/cgroup")
ASKED = "from sonorant.machine import *; print(num_cores(), free_memory_bytes())"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Those of a machine with eight cores and 64 GiB that are free."""
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    write(tmp_path, {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {64 * GIB // 1024} kB\n"})
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


@pytest.mark.usefixtures("files")
def test_without_groups_it_is_what_the_machine_has() -> None:
    assert (num_cores(), free_memory_bytes()) == (8, 64 * GIB)


@pytest.mark.parametrize("path", ["/", "/kubepods/burstable/pod1/a", "/../../b"])
def test_limits_of_a_container_with_groups_of_version_2(files: Path, path: str) -> None:
    write(
        files,
        {
            "proc/self/cgroup": f"0::{path}\n",
            "groups/cpu.max": "250000 100000\n",
            "groups/memory.max": f"{4 * GIB}\n",
            "groups/memory.current": f"{3 * GIB}\n",
            "groups/memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\n",
        },
    )
    assert (num_cores(), free_memory_bytes()) == (2, 3 * GIB)


@pytest.mark.parametrize("path", ["/", "/docker/0123"])  # the path of the host, of which the container has the end
def test_limits_of_a_container_with_groups_of_version_1(files: Path, path: str) -> None:
    write(
        files,
        {
            "proc/self/cgroup": f"4:memory:{path}\n3:cpu,cpuacct:{path}\n1:name=systemd:{path}\n0::/\n",
            "groups/cpu/cpu.cfs_quota_us": "50000\n",
            "groups/cpu/cpu.cfs_period_us": "100000\n",
            "groups/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
            "groups/memory/memory.usage_in_bytes": f"{3 * GIB}\n",
            "groups/memory/memory.stat": "total_inactive_file 4096\n",
        },
    )
    assert (num_cores(), free_memory_bytes()) == (1, 0)


def test_the_tightest_of_a_group_and_those_around_it_counts(files: Path) -> None:
    write(
        files,
        {
            "proc/self/cgroup": "0::/system.slice/sonorant.service\n",
            "groups/system.slice/cpu.max": "300000 100000\n",
            "groups/system.slice/memory.max": "max\n",
            "groups/system.slice/memory.current": f"{GIB}\n",
            "groups/system.slice/sonorant.service/cpu.max": "max 100000\n",
            "groups/system.slice/sonorant.service/memory.max": f"{8 * GIB}\n",
            "groups/system.slice/sonorant.service/memory.current": f"{GIB}\n",
        },
    )
    assert (num_cores(), free_memory_bytes()) == (3, 7 * GIB)


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    """A real group with the time of half a core, and one with 100 MiB."""
    folders = [GROUPS / controller / f"sonorant-test-{os.getpid()}" for controller in ("cpu", "memory")]
    try:
        for folder in folders:
            folder.mkdir()
    except OSError as error:
        for folder in folders:
            if folder.exists():
                folder.rmdir()
        pytest.skip(f"no control group of version 1 can be made here: {error}")
    (folders[0] / "cpu.cfs_quota_us").write_text("50000")
    (folders[1] / "memory.limit_in_bytes").write_text(str(100 << 20))
    yield folders
    for folder in folders:
        folder.rmdir()


def test_a_process_in_a_real_group(groups: list[Path]) -> None:
    joins = " && ".join(f"echo $$ > {group}/cgroup.procs" for group in groups)
    command = ["sh", "-c", f'{joins} && exec "$0" -c "$1"', sys.executable, ASKED]
    asked = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    cores, free = map(int, asked.stdout.split())
    assert cores == 1 and 50 << 20 < free < 100 << 20
