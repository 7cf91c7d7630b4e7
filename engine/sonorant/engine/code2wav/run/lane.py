"""Runs calls of the decoder as passes of a few shapes, one call after the other; calls of two lanes run side by side.

On the CPU a pass has the shape of the call, up to a bound. On CUDA there are a few shapes, each a graph. They suffice
for every call: a number of frames is a chunk size or a sum of chunk sizes (streaming is exact), and missing rows are
padded with a slot that no stream has.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sonorant.engine.code2wav.schedule.passes import split
from sonorant.engine.cuda import Buckets, start_download, work_so_far
from sonorant.engine.types import Float32Array, Int16Array, Int64Array, PassCounts


@dataclass(frozen=True, slots=True)
class LaneCall:
    """A call that was started."""

    _samples: Tensor
    _wait: Callable[[], None]
    _is_over: Callable[[], bool]

    def is_over(self) -> bool:
        """Say without waiting whether the samples are there."""
        return self._is_over()

    def samples(self) -> Int16Array | Float32Array:
        """Wait for the samples [rows, frames * frame_samples]."""
        self._wait()
        array: Int16Array | Float32Array = self._samples.numpy()
        return array


@dataclass(frozen=True, slots=True)
class Network:
    """The decoder as lanes see it."""

    step: Callable[[int, Tensor], Tensor]  # frames of a row; [1 + frames * codebooks, rows] int64 -> samples
    num_codebooks: int
    frame_samples: int
    samples_dtype: torch.dtype
    device: torch.device
    max_pass_frames: int  # of all rows together
    passes: PassCounts


def columns_of(slots: Sequence[int], codes: Int16Array) -> Int64Array:
    """The input of passes, [1 + frames * codebooks, rows], of codes [rows, frames, codebooks]."""
    columns = np.empty((1 + codes.shape[1] * codes.shape[2], len(codes)), np.int64)
    columns[0] = slots
    columns[1:] = codes.reshape(len(codes), -1).T
    return columns


class Lane:
    def __init__(
        self,
        network: Network,
        row_sizes: Mapping[int, Sequence[int]],
        padding_slot: int = 0,
        stream: "torch.cuda.Stream | None" = None,
    ) -> None:
        """`row_sizes`: the shapes of passes, the numbers of rows by the number of frames of a row; none on the CPU.
        `padding_slot`: the slot of rows that are padding. `stream`: where the lane computes; None: on the current one.
        """
        self._network = network
        self._stream = stream
        self._buckets = {
            num_frames: Buckets(
                partial(network.step, num_frames),
                [padding_slot, *[0] * (num_frames * network.num_codebooks)],
                sizes,
                network.passes,
            )
            for num_frames, sizes in row_sizes.items()
        }

    @property
    def pass_sizes(self) -> Sequence[int]:
        """The numbers of frames that a row may have in one pass, ascending."""
        return sorted(self._buckets) or range(1, self._network.max_pass_frames + 1)

    def row_sizes(self, num_frames: int) -> Sequence[int]:
        """The numbers of rows that a pass of so many frames may have, ascending."""
        buckets = self._buckets.get(num_frames)
        return buckets.sizes if buckets else range(1, 1 + max(1, self._network.max_pass_frames // num_frames))

    def captures(self, *, hurries: bool) -> tuple[list[Callable[[], None]], list[Callable[[], None]]]:
        """Return what captures the graphs of all shapes, one each, largest first: the graphs to capture now, and with
        `hurries` the graphs that can wait. The graphs share memory: no two run at once."""
        pool, device = torch.cuda.graph_pool_handle(), self._network.device
        shapes = [(rows, frames) for frames, buckets in self._buckets.items() for rows in buckets.sizes]
        now, later = list[Callable[[], None]](), list[Callable[[], None]]()
        for num_rows, num_frames in sorted(shapes, key=lambda shape: shape[0] * shape[1], reverse=True):
            buckets = self._buckets[num_frames]
            can_wait = hurries and num_rows != buckets.sizes[-1]
            (later if can_wait else now).append(partial(buckets.capture, num_rows, device, pool, self._stream))
        return now, later

    def current(self) -> AbstractContextManager[object]:
        """Inside the block, whatever is given to the device goes to this lane."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def wait_for(self, other: "Lane") -> None:
        """What this lane does from now on comes after all that the other was given so far."""
        if other._stream is not None:
            with self.current():
                torch.cuda.current_stream().wait_stream(other._stream)

    @torch.inference_mode()
    def start(self, slots: Sequence[int], codes: Int16Array) -> LaneCall:
        """Start to decode the next frames of some slots [rows, frames, codebooks]."""
        num_rows, num_frames = codes.shape[:2]
        columns = columns_of(slots, codes)
        frames = split(num_frames, self.pass_sizes)
        is_one_pass = len(frames) == len(split(num_rows, self.row_sizes(num_frames))) == 1
        with self.current():
            samples = self._pass(num_frames, columns) if is_one_pass else self._in_passes(columns, frames)
            host = start_download(samples)
            wait, is_over = work_so_far(self._network.device)
        return LaneCall(host, wait, is_over)

    def _in_passes(self, columns: Int64Array, frames: Sequence[slice]) -> Tensor:
        """Run a call whose frames are divided like this among passes, and rows as the passes allow."""
        network = self._network
        shape = columns.shape[1], frames[-1].stop * network.frame_samples
        samples = torch.empty(shape, dtype=network.samples_dtype, device=network.device)
        slots, codes = columns[:1], columns[1:]
        for part in frames:
            size = part.stop - part.start
            codes_of_part = codes[part.start * network.num_codebooks : part.stop * network.num_codebooks]
            place = slice(part.start * network.frame_samples, part.stop * network.frame_samples)
            for rows in split(columns.shape[1], self.row_sizes(size)):
                samples[rows, place] = self._pass(size, np.concatenate([slots[:, rows], codes_of_part[:, rows]]))
        return samples

    def _pass(self, num_frames: int, columns: Int64Array) -> Tensor:
        network = self._network
        if self._buckets:
            return self._buckets[num_frames](columns, network.device)
        network.passes.add(columns.shape[1], columns.shape[1])
        return network.step(num_frames, torch.from_numpy(columns))
