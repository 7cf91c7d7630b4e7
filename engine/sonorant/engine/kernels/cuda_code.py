"""Kernels in CUDA C++, for what Triton cannot express. NVRTC, which torch brings along, compiles them when they are
first needed; the code is kept in Triton's cache folder for later starts.

Such kernels always overlap with their neighbours (`sonorant.engine.kernels.overlap`), so they need a card with
dependent launch. `offers` says whether a card has all that one needs.
"""

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton.runtime.cache import get_cache_manager

from sonorant.engine.card.device import card_of

try:
    from cuda.bindings import driver, nvrtc

    HAS_BINDINGS = True
except ImportError:  # a torch for the CPU, or one that does not need these bindings
    HAS_BINDINGS = False


def offers(x: Tensor, *, shared_bytes: int = 0, clusters: bool = False, warpgroups: bool = False) -> bool:
    """Return whether the card of `x` has what a kernel needs, which may be so much shared memory for a block, clusters
    of blocks, or matrix instructions of warpgroups."""
    card = card_of(x.device) if HAS_BINDINGS else None
    return (
        card is not None
        and card.has_dependent_launch
        and card.shared_bytes >= shared_bytes
        and (card.has_clusters or not clusters)
        and (card.has_warpgroups or not warpgroups)
    )


@dataclass(frozen=True, slots=True)
class CudaKernel:
    function: Any  # CUfunction
    blocks: int
    threads: int
    blocks_per_cluster: int
    shared_bytes: int

    def of_blocks(self, blocks: int) -> "CudaKernel":
        """The same kernel, to be launched with so many blocks."""
        return replace(self, blocks=blocks)

    def launch(self, *arguments: Tensor | int | float) -> None:
        """Launch it on the current stream. Integers are `int` there, floats `float`."""
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self.blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self.threads, 1, 1
        config.sharedMemBytes = self.shared_bytes
        config.hStream = torch.cuda.current_stream().cuda_stream
        overlap = driver.CUlaunchAttribute()
        overlap.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        overlap.value.programmaticStreamSerializationAllowed = 1
        attributes = [overlap]
        if self.blocks_per_cluster > 1:
            cluster = driver.CUlaunchAttribute()
            cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = cluster.value.clusterDim
            size.x, size.y, size.z = self.blocks_per_cluster, 1, 1
            attributes.append(cluster)
        config.attrs, config.numAttrs = attributes, len(attributes)
        values = tuple(each.data_ptr() if isinstance(each, Tensor) else each for each in arguments)
        _checked(driver.cuLaunchKernelEx(config, self.function, (values, tuple(map(_type, arguments))), 0))


@dataclass(frozen=True, slots=True)
class Source:
    """What a kernel is compiled from, and what it needs."""

    file: str
    macros: tuple[tuple[str, int], ...]
    shared_bytes: int
    architecture: str

    def compile(self) -> bytes:
        return compiled(self.file, dict(self.macros), self.architecture)


class Unlaunched(CudaKernel):
    """A kernel that is only listed."""

    def launch(self, *arguments: Tensor | int | float) -> None:
        """Do nothing."""


# While kernels are listed and not run (`sonorant.engine.kernels.listing`): those that were asked for.
listed: list[Source] | None = None


def load(
    file: str,
    macros: Mapping[str, int],
    device: torch.device,
    *,
    threads: int,
    blocks: int = 1,
    blocks_per_cluster: int = 1,
    shared_bytes: int = 0,
) -> CudaKernel:
    """Return the kernel that a file of this package defines under the file's name, compiled with these macros."""
    card = card_of(device)
    assert card is not None, "`offers` says so"
    if listed is not None:
        listed.append(Source(file, tuple(macros.items()), shared_bytes, card.architecture))
        return Unlaunched(None, blocks, threads, blocks_per_cluster, shared_bytes)
    name = Path(file).stem
    code = compiled(file, macros, card.architecture)
    function = _checked(driver.cuModuleGetFunction(_checked(driver.cuModuleLoadData(code)), name.encode()))
    size = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _checked(driver.cuFuncSetAttribute(function, size, shared_bytes))
    return CudaKernel(function, blocks, threads, blocks_per_cluster, shared_bytes)


def compiled(file: str, macros: Mapping[str, int], architecture: str) -> bytes:
    """Return the machine code of a file of this package. Raises RuntimeError with what the compiler says."""
    folder = Path(__file__).parent
    source = (folder / file).read_text()
    headers = {path.name: path.read_text() for path in sorted(folder.glob("*.cuh"))}
    options = [f"--gpu-architecture={architecture}", "--std=c++17", *(f"-D{k}={v}" for k, v in macros.items())]
    version = _checked(nvrtc.nvrtcVersion())
    key = hashlib.sha256(repr((source, headers, options, version)).encode()).hexdigest()
    kept = get_cache_manager(key)
    name = Path(file).with_suffix(".cubin").name
    if path := kept.get_file(name):
        return Path(path).read_bytes()
    code = _compile(source, file, headers, options)
    kept.put(code, name)
    return code


def _compile(source: str, file: str, headers: Mapping[str, str], options: Sequence[str]) -> bytes:
    texts, names = [text.encode() for text in headers.values()], [name.encode() for name in headers]
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), file.encode(), len(headers), texts, names))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"{file} cannot be compiled with {' '.join(options)}:\n{log.rstrip(bytes(1)).decode()}")
        code = bytes(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(result: Sequence[Any]) -> Any:
    """Return what a function of the driver or the compiler gave, without its status. Raises RuntimeError."""
    status, *values = result
    if status != type(status)(0):
        raise RuntimeError(f"a CUDA kernel cannot be compiled or launched: {status.name}")
    return values[0] if values else None


def _type(argument: Tensor | int | float) -> Any:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p
    return ctypes.c_float if isinstance(argument, float) else ctypes.c_int


def num_multiprocessors(device: torch.device) -> int:
    card = card_of(device)
    assert card is not None, "`offers` says so"
    return card.multiprocessors
