"""Loads the functions in C, compiled when the distribution is built, if there is a C compiler.

Functions and structures are declared in api.h, which both compilers read: that of C and cffi. Structures hold
addresses, so the code that makes one keeps the tensors alive in a `Kept`.
"""

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import torch
from torch import Tensor

from sonorant.engine.cpu.sources import digest
from sonorant.engine.errors import EngineError

LANES = 16  # PACKED in convolutions.h; sizes of models must be multiples of it
LIMIT = 4095  # of rounded weights of convolutions, as there
# Builds of engine/build_cpu.py, best first: what torch must say that the CPU has ("": anything), and Linux.
BUILDS: tuple[tuple[str, str, set[str]], ...] = (
    ("vnni", "AVX512", {"avx512_vnni"}),
    ("avx512", "AVX512", set()),
    ("avxvnni", "AVX2", {"avx_vnni"}),
    ("avx2", "AVX2", set()),
    ("i8mm", "", {"asimddp", "i8mm"}),  # 64-bit Arm, like the next one
    ("dotprod", "", {"asimddp"}),
)
LEVELS = ("AVX512", "AVX2", "")
ANY = "any"  # the build for every CPU of this architecture
BUILD_VARIABLE = "SONORANT_CPU"  # names the build to use, for tests and measurements
SOURCES = Path(__file__).with_name("c")


_ffi = cffi.FFI()
# Of the preprocessor's lines it reads those that name a number.
_ffi.cdef(re.sub(r"^#(?!define \w+ \d).*", "", (SOURCES / "api.h").read_text(), flags=re.MULTILINE))
NULL = _ffi.NULL


def at(data: Tensor | np.ndarray) -> Any:
    """Return the address of a contiguous tensor or array."""
    return _ffi.cast("void *", data.data_ptr() if isinstance(data, Tensor) else data.ctypes.data)


class Kept:
    """Keeps the memory alive that structures point to. Tensors must be contiguous and on the CPU."""

    def __init__(self) -> None:
        self._all: list[object] = []

    def tensor(self, tensor: Tensor) -> Any:
        """Keep a tensor and return its address."""
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise ValueError("only a contiguous tensor on the CPU can be passed to a C function")
        self._all.append(tensor)
        return at(tensor)

    def tensors(self, tensors: Iterable[Tensor]) -> Any:
        """Keep some tensors and return the address of an array of their addresses."""
        return _ffi.cast("void *", self.array("void *", map(self.tensor, tensors)))

    def array(self, kind: str, fields: Iterable[Any]) -> Any:
        """Make and keep an array of structures, each given as its fields: all in their order, or by name."""
        made = _ffi.new(f"{kind}[]", list(fields))
        self._all.append(made)
        return made


def structure(kind: str, **fields: Any) -> Any:
    """Make a structure and return its address. It lives as long as what is returned."""
    return _ffi.new(f"{kind} *", fields)


@cache
def library() -> Any | None:
    """Return the functions of api.h; None if this machine has no build. Raises EngineError as `chosen` and `load`."""
    path = chosen()
    return None if path is None else load(path)


def chosen() -> Path | None:
    """Return the build to use. Raises EngineError if SONORANT_CPU names one that cannot run here."""
    paths = builds()
    wanted = os.environ.get(BUILD_VARIABLE)
    if wanted and wanted not in paths:
        raise EngineError(f"{BUILD_VARIABLE} is {wanted}; what was compiled and runs on this CPU: {', '.join(paths)}")
    return paths[wanted or next(iter(paths))] if paths else None


def builds() -> dict[str, Path]:
    """Return the builds that this machine can run, by name, the best one first."""
    level, flags = torch.backends.cpu.get_cpu_capability(), _flags()
    levels = LEVELS[LEVELS.index(level if level in LEVELS else "") :]
    names = [name for name, needed, features in BUILDS if needed in levels and features <= flags]
    paths = {name: Path(__file__).with_name(f"cpu-{name}.so") for name in (*names, ANY)}
    return {name: path for name, path in paths.items() if path.exists()}


def _flags() -> set[str]:
    """What Linux says of the CPU's instructions; empty on machines where it says it differently."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return set(found[1].split()) if found else set()


def load(path: Path) -> Any:
    """Load the functions of a build. Each file has its own threads. Raises EngineError if it is a file of another
    version, as in a checkout that was updated and not installed again."""
    try:
        functions = _ffi.dlopen(str(path))
        if _ffi.string(functions.sources_version()) != digest(SOURCES).encode():
            raise OSError("compiled from other C files")
    except (AttributeError, OSError) as error:
        raise EngineError(
            f"{path.name} is of another version than the code ({error}); "
            "install sonorant-server again (in a checkout: make setup)"
        ) from None
    return functions


def use_threads(count: int) -> None:
    """Have torch and the C functions share their loops among so many threads. Call it once in a process."""
    torch.set_num_threads(count)
    if (functions := library()) is not None:
        functions.use_threads(count)


def leave_cores_to_functions() -> None:
    """Have torch compute in one thread from now on. Its other threads look for work for 9 ms after each operation, on
    the cores where the C functions share their loops."""
    torch.set_num_threads(1)
