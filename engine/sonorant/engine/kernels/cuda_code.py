"""Kernels in CUDA C++, for what Triton cannot express. NVRTC, which torch brings along, compiles them when they are
first needed; the code is kept in Triton's cache folder for later starts.

Such kernels always overlap with their neighbours (`sonorant.engine.kernels.overlap`), so they need a GPU of compute
capability 9 or higher. `is_usable` says whether they can run.
"""

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton.runtime.cache import get_cache_manager

try:
    from cuda.bindings import driver, nvrtc

    HAS_BINDINGS = True
except ImportError:  # a torch for the CPU, or one that does not need these bindings
    HAS_BINDINGS = False


def is_usable(x: Tensor) -> bool:
    """Return whether a kernel can work on `x`."""
    return HAS_BINDINGS and x.is_cuda and _capability(x.device)[0] >= 9


def has_warpgroups(x: Tensor) -> bool:
    """Return whether a kernel with matrix instructions of warpgroups can work on `x`: only Hopper GPUs have them."""
    return HAS_BINDINGS and x.is_cuda and _capability(x.device)[0] == 9


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
    major, minor = _capability(device)
    name = Path(file).stem
    code = compiled(file, macros, f"sm_{major}{minor}a")
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


@cache
def num_multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
