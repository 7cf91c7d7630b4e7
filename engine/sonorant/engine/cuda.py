"""A worker's device: choosing it and its number format, copies to and from it, CUDA graphs by bucket."""

import ctypes
import gc
import math
import mmap
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonorant.engine.config import DtypeName
from sonorant.engine.errors import EngineError
from sonorant.engine.types import PassCounts

T = TypeVar("T")

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def find_device(name: str) -> torch.device:
    """Return the device of a name; `auto` is the first CUDA device, or the CPU if there is none.

    Raises EngineError if there is no such device.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise EngineError(f"{name!r} is not a device; use auto, cpu, or cuda:0 and so on") from error
    if device.type not in ("cpu", "cuda"):
        raise EngineError(f"{name!r} is not supported; use auto, cpu, or cuda:0 and so on")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        there = f"CUDA devices found: {count}" if count else why_no_device()
        raise EngineError(f"{name!r} does not exist here; {there}")
    return device


def why_no_device() -> str:
    """Explain why torch finds no CUDA device: what is missing, and how to get it."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built for the CPU only"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return (
            "NVIDIA's driver (libcuda.so.1) is not installed; "
            "a container gets it from the host, with NVIDIA's container toolkit and `--gpus all`"
        )
    return (
        "NVIDIA's driver is installed, but torch finds no device; look at nvidia-smi and CUDA_VISIBLE_DEVICES, "
        f"and check whether the driver is new enough for CUDA {torch.version.cuda}"
    )


def use_device(name: str) -> torch.device:
    """Find a device and make it torch's current one, on which kernels are launched and graphs captured."""
    device = find_device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def compute_dtype(wanted: DtypeName, on_disk: str, device: torch.device) -> torch.dtype:
    """Return the dtype to compute in; `auto` is float32 on the CPU, and on CUDA the checkpoint's dtype on disk."""
    if wanted != "auto":
        return _DTYPES[wanted]
    return torch.float32 if device.type == "cpu" else _DTYPES.get(on_disk, torch.bfloat16)


def zeros(shape: Sequence[int], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Like torch.zeros, but on the CPU a page of memory takes none until it is written. NumPy's and torch's own arrays
    would take 2 MiB for each page."""
    if device.type != "cpu":
        return torch.zeros(*shape, device=device, dtype=dtype)
    memory = mmap.mmap(-1, max(1, math.prod(shape) * dtype.itemsize), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype, count=math.prod(shape)).view(*shape)


def upload(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy an array to the device without waiting for it. On the CPU, the result shares the array's memory."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor if device.type == "cpu" else tensor.to(device)


def download(tensor: Tensor) -> Tensor:
    """Copy a tensor to the host and wait for it."""
    if not tensor.is_cuda:
        return tensor
    host = start_download(tensor)
    wait_for_work_so_far(tensor.device)()
    return host


def start_download(tensor: Tensor) -> Tensor:
    """Start to copy a tensor to the host. The result is complete once the device has done what it was given so far."""
    if not tensor.is_cuda:
        return tensor
    host = torch.empty_like(tensor, device="cpu", pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    return host


def wait_for_work_so_far(device: torch.device) -> Callable[[], None]:
    """Return a function that waits until the device has done all that it was given before this call. The host waits for
    the device nowhere else."""
    return work_so_far(device)[0]


def work_so_far(device: torch.device) -> tuple[Callable[[], None], Callable[[], bool]]:
    """Return what `wait_for_work_so_far` does, and a function that says without waiting whether that is done. Both
    raise RuntimeError if the device has failed."""
    if device.type != "cuda":
        return lambda: None, lambda: True
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record()
    return done.synchronize, done.query


class Buckets:
    """A function of an int64 tensor [columns, rows] that is called only with a few row counts, the buckets.

    Rows are filled up to the next bucket with a padding column, which may be repeated without harm. Once captured, a
    bucket is replayed as a CUDA graph, whose inputs and outputs keep their memory: a result lasts until the next call.
    Capture the largest first: until a bucket is captured, the next larger one that was takes its rows.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        padding: Sequence[int],
        sizes: Sequence[int],
        counts: PassCounts,
    ) -> None:
        self._function = function
        self._counts = counts
        self._padding = np.array(padding, np.int64)[:, None]
        self.sizes = sorted(sizes)
        self._graphs: dict[int, _Graph] = {}
        self._captured: list[int] = []  # the sizes of the graphs, ascending

    def capture(self, size: int, device: torch.device, pool: Any, stream: "torch.cuda.Stream | None" = None) -> None:
        """Capture the bucket of this size. Graphs of one `pool` share its memory: replay them one after the other.

        `stream`: where they will be replayed, if beside graphs of other pools. Libraries then use other memory as well.
        """
        inputs = upload(self.padding_rows(size), device)
        graph, outputs = captured(lambda: self._function(inputs), pool, stream)
        staged, copied = torch.from_numpy(self.padding_rows(size)).pin_memory(), torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._graphs[size] = _Graph(graph, inputs, outputs, staged, staged.numpy(), copied)
        insort(self._captured, size)

    def run(self, size: int, device: torch.device) -> None:
        """Run the bucket of this size on padding rows, without a graph."""
        self._function(upload(self.padding_rows(size), device))

    def padding_rows(self, count: int) -> npt.NDArray[np.int64]:
        """[columns, count]"""
        return np.repeat(self._padding, count, 1)

    def __call__(self, columns: npt.NDArray[np.int64], device: torch.device) -> Tensor:
        num_rows = columns.shape[1]
        sizes = self._captured or self.sizes
        size = sizes[bisect_left(sizes, num_rows)]
        graph = self._graphs.get(size)
        self._counts.add(num_rows, size, is_graph=graph is not None)
        if graph is None:
            padded = self.padding_rows(size)
            padded[:, :num_rows] = columns
            return self._function(upload(padded, device))[:num_rows]
        graph.fill(columns, self._padding)
        graph.graph.replay()
        return graph.outputs[:num_rows]


@dataclass(frozen=True, slots=True)
class _Graph:
    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    outputs: Tensor
    staged: Tensor  # like `inputs`, in pinned memory of the host; kept, as taking such memory costs more than the copy
    rows: npt.NDArray[np.int64]  # the memory of `staged`
    copied: torch.cuda.Event  # after the last copy out of `staged`

    def fill(self, columns: npt.NDArray[np.int64], padding: npt.NDArray[np.int64]) -> None:
        """Copy the columns to `inputs`, with padding behind them."""
        num_rows = columns.shape[1]
        self.copied.synchronize()
        self.rows[:, :num_rows] = columns
        self.rows[:, num_rows:] = padding
        self.inputs.copy_(self.staged, non_blocking=True)
        self.copied.record()


def captured(
    function: Callable[[], T], pool: Any, stream: "torch.cuda.Stream | None" = None
) -> tuple[torch.cuda.CUDAGraph, T]:
    """Return a graph of what a function does, and the outputs that each replay fills. See `Buckets.capture`."""
    function()  # compiles kernels and initializes libraries, neither of which can be captured
    graph = torch.cuda.CUDAGraph()
    with _without_collections(), torch.cuda.graph(graph, pool=pool, stream=stream):
        outputs = function()
    return graph, outputs


@contextmanager
def _without_collections() -> Iterator[None]:
    """Keep the garbage collector from running: to free another graph, of a runner that is no more, spoils a capture."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def bucket_sizes(largest: int, smallest: int = 1) -> list[int]:
    """Return bucket sizes up to one that holds `largest`: powers of two, and from 16 on also half-way between them."""
    sizes = [smallest]
    while sizes[-1] < largest:
        last = sizes[-1]
        is_power = last & (last - 1) == 0
        sizes.append(last * 2 if last < 16 else last * 3 // 2 if is_power else last * 4 // 3)
    return sizes
