"""Compiles the C functions for the CPU when the server's distribution is built or installed, if there is a C compiler.

Without a compiler the distribution lacks no feature, but small models are a few times slower on the CPU.
"""

import os
import platform
import re
import runpy
import shlex
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = (
    "-O3",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-pthread",
)
SOURCES = ("frame.c", "codec.c", "encoder.c", "speaker.c", "threads.c")
# By what platform.machine() says; the keys are part of the file names that sonorant.engine.cpu.library looks for.
MACHINES: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "any": (),
        "avx2": ("-march=x86-64-v3",),
        "avxvnni": ("-march=x86-64-v3", "-mavxvnni"),
        "avx512": ("-march=x86-64-v4",),
        "vnni": ("-march=x86-64-v4", "-mavx512vnni"),
    },
    "aarch64": {
        "any": (),
        "dotprod": ("-march=armv8.2-a+dotprod",),
        "i8mm": ("-march=armv8.2-a+dotprod+i8mm",),
    },
}
digest = runpy.run_path(str(Path(__file__).with_name("sonorant") / "engine/cpu/sources.py"))["digest"]
# What Linux says of an x86 CPU that can run them.
FEATURES = {"avx2": {"avx2"}, "avxvnni": {"avx_vnni"}, "avx512": {"avx512f"}, "vnni": {"avx512_vnni"}}


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # What is installed for editing runs here, and two builds take a third of the time of five.
        if build(Path(self.root) / "engine/sonorant/engine/cpu", for_this_cpu=version == "editable"):
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def build(folder: Path, *, for_this_cpu: bool = False) -> bool:
    """Compile for each machine, several at a time, or only what this CPU can run; return whether at least one
    compilation succeeded."""
    machines = MACHINES.get(platform.machine(), {"any": ()})
    if for_this_cpu and (found := re.search(r"^flags\s*:(.*)$", _cpu_info(), re.MULTILINE)):
        here = set(found[1].split())
        machines = {name: flags for name, flags in machines.items() if FEATURES.get(name, set()) <= here}
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return any(list(threads.map(partial(_compile, folder), machines.items())))


def _cpu_info() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def _compile(folder: Path, machine: tuple[str, tuple[str, ...]]) -> bool:
    name, flags = machine
    target = folder / f"cpu-{name}.so"
    # Write a new file and rename it: a running server has the old one mapped.
    compiler = shlex.split(os.environ.get("CC", "cc"))
    version = f'-DSOURCES_VERSION="{digest(folder / "c")}"'
    command = [*compiler, *FLAGS, version, *flags, *SOURCES, "-o", f"{target}.new", "-lm"]
    try:
        subprocess.run(command, cwd=folder / "c", check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", None) or error
        print(f"not compiled for {name}, so small models are slower on the CPU: {why}", file=sys.stderr)
        target.unlink(missing_ok=True)
        return False
    os.replace(f"{target}.new", target)
    return True
