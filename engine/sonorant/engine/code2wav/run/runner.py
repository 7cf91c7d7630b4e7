"""Runs the decoder on its device: owns the weights and the state of every slot; one call decodes frames of some slots.

Knows slots, not streams, and does not decide what is decoded when.

On CUDA there are two lanes (`lane.py`). Urgent chunks are decoded beside the call under way, and ahead of it where both
want the same multiprocessor, as a listener is waiting for them. Their graphs have memory of their own. Slots are
changed in their lane, and each call waits for the changes made so far.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.code2wav.run.lane import Lane, LaneCall, Network, columns_of
from sonorant.engine.code2wav.run.loading import empty_code2wav, load_arranged, load_code2wav
from sonorant.engine.code2wav.schedule.context import DecoderContext
from sonorant.engine.code2wav.schedule.formats import agreement_db, choose_format
from sonorant.engine.code2wav.schedule.passes import padded, shapes
from sonorant.engine.config import CodecDtypeName, EngineConfig
from sonorant.engine.cpu.codec import CompiledCode2Wav
from sonorant.engine.cpu.codec_weights import fits
from sonorant.engine.cpu.library import library
from sonorant.engine.cuda import Buckets, bucket_sizes, find_device, work_so_far
from sonorant.engine.deferred_work import DeferredWork
from sonorant.engine.errors import EngineError
from sonorant.engine.kernels.folder import wait_until_filled
from sonorant.engine.model.codec.code2wav import Code2Wav
from sonorant.engine.model.codec.code2wav_state import CodecState
from sonorant.engine.sizes import max_pass_frames
from sonorant.engine.types import Float32Array, Int16Array, PassCounts
from sonorant.logs import start

log = logging.getLogger(__name__)

PCM_SCALE = 32767.0

# Frames of a row that one call of `remember` should take on the CPU. It costs as much as decoding one or two frames,
# and each further frame adds little.
REMEMBERED_FRAMES = 128

# On CUDA, most unheard frames go through the layers up to the transformer only, in passes of these shapes. The others
# are decoded like frames that are heard, with the same graphs.
ATTENDED_ROWS = {16: (1, 4, 32), 128: (1, 4)}  # by frames of a row

# Urgent chunks in one pass; more at once are rare, and take a second pass.
MOST_URGENT_ROWS = 32

TIMED_CALLS, CPU_TIMED_CALLS, CPU_TIMED_FRAMES = 3, 2, 4

_DTYPES: dict[CodecDtypeName, torch.dtype] = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
}


class Decoder(Protocol):
    """The network, made of plain torch operations, of compiled functions or of fused kernels."""

    def new_state(self, num_slots: int) -> CodecState: ...

    def step(self, codes: Tensor, state: CodecState, slots: Tensor) -> Tensor: ...


class DecoderOnGpu(Decoder, Protocol):
    def attend(self, codes: Tensor, state: CodecState, slots: Tensor) -> None: ...


class Code2WavRunner:
    def __init__(
        self, checkpoint: Checkpoint, config: EngineConfig, *, float_output: bool = False, hurries: bool = False
    ) -> None:
        """`hurries`: on CUDA, leave what can wait to `do_deferred`."""
        self.frame_samples = checkpoint.codec.frame_samples
        self.num_slots = config.talker.num_slots
        self.passes = PassCounts()
        self._deferred = DeferredWork()
        self._pcm_dtype = torch.float32 if float_output else torch.int16
        self._device = find_device(config.code2wav.device)
        self._matmul = "tf32" if config.code2wav.dtype == "tf32" else "ieee"
        if self._matmul == "tf32" and self._device.type == "cpu":
            raise EngineError("code2wav_dtype tf32 needs a CUDA device; use float32")
        self.format = config.code2wav.dtype
        dtype = _DTYPES[self.format]
        is_on_gpu = self._device.type == "cuda"
        compiled = _compiled(checkpoint, config) if not is_on_gpu and dtype == torch.float32 else None
        if compiled is None:
            decoder = load_code2wav(checkpoint, config, self._device, dtype)
        else:
            decoder = empty_code2wav(checkpoint)
        start.phase("weights")
        self._num_codebooks = checkpoint.codec.decoder.num_quantizers
        with torch.inference_mode():
            on_gpu: DecoderOnGpu = _fused(decoder) if is_on_gpu and dtype == torch.float16 else decoder
            on_cpu = compiled or decoder
            self._decoder: Decoder = on_gpu if is_on_gpu else on_cpu
            self._state = self._decoder.new_state(config.num_codec_states)
            start.phase("memory of streams")
            if is_on_gpu:
                wait_until_filled()
                start.phase("kernels")
                self._main, self._urgent = self._lanes(config, hurries=hurries)
                start.phase("graphs")
                self._attending = self._attended_passes(on_gpu, config)
                start.phase("graphs of frames that nobody hears")
                self.context = DecoderContext(
                    decoder.receptive_frames,
                    self.pass_sizes[-1],
                    tuple(self._attending),
                    decoder.convolved_frames,
                    checkpoint.silent_first_frames,
                )
            else:
                self._main = self._urgent = Lane(self._network(), {})
                self.context = DecoderContext(
                    decoder.receptive_frames, REMEMBERED_FRAMES, silent_first_frames=checkpoint.silent_first_frames
                )
        self._remembering = None if is_on_gpu else on_cpu
        self._warm_up(config.code2wav.chunk_ramp)
        start.phase("first calls")

    @property
    def is_rounded(self) -> bool:
        """Whether the C functions compute with many weights, and torch next to nothing."""
        return isinstance(self._decoder, CompiledCode2Wav) and self._decoder.is_rounded

    @property
    def pass_sizes(self) -> Sequence[int]:
        """The numbers of frames that a row may have in one pass, ascending."""
        return self._main.pass_sizes

    def reset(self, slot: int, num_frames: int = 0) -> None:
        """Forget the stream that the slot had before. The next one is decoded from frame `num_frames` on.

        If that is not 0, the state is right only after `context.receptive_frames` frames, and the audio of these is
        wrong.
        """
        with torch.inference_mode(), self._urgent.current():
            self._state.reset(slot, num_frames)

    def copy(self, source: int, target: int) -> None:
        """Copy the state of slot `source` to slot `target`."""
        with torch.inference_mode(), self._urgent.current():
            self._state.copy(source, target)

    def decode(self, slots: Sequence[int], codes: Int16Array) -> Int16Array | Float32Array:
        """Decode the next frames of some slots: [rows, frames, codebooks] -> samples [rows, frames * frame_samples]."""
        return self.start(slots, codes).samples()

    def start(self, slots: Sequence[int], codes: Int16Array) -> LaneCall:
        """Start what `decode` does. On the CPU it is over then; otherwise do not start another one before it is."""
        self._main.wait_for(self._urgent)
        return self._main.start(slots, codes)

    def decode_urgent(self, slots: Sequence[int], codes: Int16Array) -> Int16Array | Float32Array:
        """Decode chunks as long as first ones, as `decode` does, while a call of other slots is under way."""
        return self._urgent.start(slots, codes).samples()

    @torch.inference_mode()
    def remember(self, slots: Sequence[int], codes: Int16Array) -> None:
        """Take the frames into the slots' state as `decode` does, without making audio. For what must follow calls of
        `context.attended_frames`, see there."""
        if self._remembering is None:
            self._remember_on_gpu(slots, codes)
            return
        self.passes.add(len(slots), len(slots))
        self._remembering.remember(torch.from_numpy(codes.astype(np.int64)), self._state, torch.tensor(slots))

    def _remember_on_gpu(self, slots: Sequence[int], codes: Int16Array) -> None:
        num_rows, num_frames = codes.shape[:2]
        if (passes := self._attending.get(num_frames)) is None:
            self.decode(slots, codes)
            return
        self._main.wait_for(self._urgent)
        columns = columns_of(slots, codes)
        for rows in padded(num_rows, passes.sizes[-1]):  # such a pass takes hardly longer with more rows
            passes(columns[:, rows], self._device)
        wait, _ = work_so_far(self._device)
        wait()

    @torch.inference_mode()
    def do_deferred(self) -> float | None:
        """Between two calls: do a piece of what was left for later, if one is due. Return in how many seconds the next
        one is; None: nothing is left."""
        return self._deferred.turn()

    def speak(self, codes: Int16Array) -> Float32Array:  # [frames, codebooks]
        """Decode a whole speech at once; samples are in +-1. It uses slot 0: call it only when there are no streams."""
        samples: Float32Array = self.decode([0], codes[None])[0].astype(np.float32)
        self.reset(0)
        return samples if self._pcm_dtype.is_floating_point else samples / np.float32(PCM_SCALE)

    def frame_time(self) -> float:
        """Measure the seconds that a frame of one stream takes in full calls; on the CPU in calls of a few frames, as
        processor time, shared by the threads. Call it only while there are no streams: it changes their slots."""
        on_cpu = self._device.type == "cpu"
        num_frames = CPU_TIMED_FRAMES if on_cpu else self.pass_sizes[-1]
        num_rows = 1 if on_cpu else min(self.num_slots, self._main.row_sizes(num_frames)[-1])
        clock, shared = (time.process_time, torch.get_num_threads()) if on_cpu else (time.perf_counter, 1)
        codes = np.zeros((num_rows, num_frames, self._num_codebooks), np.int16)
        times_s = []
        for _ in range(CPU_TIMED_CALLS if on_cpu else TIMED_CALLS):
            began_s = clock()
            self.decode(range(num_rows), codes)
            times_s.append(clock() - began_s)
        # The quickest counts: other work on the GPU, such as the talker getting ready, may have slowed the others.
        return min(times_s) / codes[..., 0].size / shared

    def _step(self, num_frames: int, columns: Tensor) -> Tensor:
        """Run one pass. `columns` [1 + frames * codebooks, rows] int64: the slot and the codes of each row."""
        codes = columns[1:].T.reshape(-1, num_frames, self._num_codebooks)
        with _float32_products(self._matmul):
            samples = self._decoder.step(codes, self._state, columns[0]).float()
        return samples if self._pcm_dtype.is_floating_point else samples.mul_(PCM_SCALE).round_().to(self._pcm_dtype)

    def _attended_passes(self, decoder: DecoderOnGpu, config: EngineConfig) -> dict[int, Buckets]:
        """The passes of `remember` by the number of frames of a row, with columns as in `_step`."""

        def attend(num_frames: int, columns: Tensor) -> Tensor:
            with _float32_products(self._matmul):
                decoder.attend(columns[1:].T.reshape(-1, num_frames, self._num_codebooks), self._state, columns[0])
            return columns[0]

        passes = {}
        pool = torch.cuda.graph_pool_handle()
        for num_frames, sizes in ATTENDED_ROWS.items():
            column = [config.num_codec_states - 1, *[0] * (num_frames * self._num_codebooks)]  # of no stream
            passes[num_frames] = Buckets(partial(attend, num_frames), column, sizes, self.passes)
            for size in reversed(() if config.enforce_eager else sizes):
                passes[num_frames].capture(size, self._device, pool)
        return passes

    def _network(self) -> Network:
        return Network(
            self._step,
            self._num_codebooks,
            self.frame_samples,
            self._pcm_dtype,
            self._device,
            max_pass_frames(self._device.type, self.num_slots, _DTYPES[self.format].itemsize),
            self.passes,
        )

    def _lanes(self, config: EngineConfig, *, hurries: bool = False) -> tuple[Lane, Lane]:
        """Return the lane of most calls, and that of urgent chunks, with passes of a few shapes."""
        started_s = time.monotonic()
        network = self._network()
        padding_slot, first_frames = config.num_codec_states - 1, config.code2wav.chunk_ramp[0]
        sizes = bucket_sizes(config.code2wav.max_decode_batch)
        usual_shapes = shapes(config.code2wav.chunk_ramp, sizes, network.max_pass_frames)
        urgent_shapes = {first_frames: [size for size in sizes if size <= MOST_URGENT_ROWS]}
        is_cuda = self._device.type == "cuda"
        stream = torch.cuda.Stream(self._device, priority=-1) if is_cuda else None  # type: ignore[no-untyped-call]
        main, urgent = Lane(network, usual_shapes, padding_slot), Lane(network, urgent_shapes, padding_slot, stream)
        if not config.enforce_eager:
            captures = [main.captures(hurries=hurries), urgent.captures(hurries=hurries)]
            first, left = ([each for lane in captures for each in lane[i]] for i in (0, 1))
            for capture in first:
                capture()
            torch.cuda.empty_cache()  # give the memory of the first calls back, so that the talker process can use it
            self._deferred = DeferredWork(left)
            log.info("captured %d graphs in %.1f s, %d later", len(first), time.monotonic() - started_s, len(left))
        return main, urgent

    def _warm_up(self, chunk_sizes: Sequence[int]) -> None:
        """Make the first call of each shape, which is slow, so that it does not delay a stream's first audio. Compiled
        functions get nothing ready for a shape."""
        for num_frames in sorted(set(chunk_sizes[:1] if isinstance(self._decoder, CompiledCode2Wav) else chunk_sizes)):
            self.decode([0], np.zeros((1, num_frames, self._num_codebooks), np.int16))
        self.reset(0)


def runner_in_fitting_format(
    runner: Code2WavRunner, checkpoint: Checkpoint, config: EngineConfig, codes: Int16Array
) -> tuple[Code2WavRunner, str]:
    """Return `runner` if its samples of `codes` [frames, codebooks] agree with those of float32, else a runner in a
    slower format; and a text that says why."""
    decoder = load_code2wav(checkpoint, config, runner._device, torch.float32)
    with torch.inference_mode(), _float32_products("ieee"):
        samples = speak_plainly(decoder, torch.from_numpy(codes.astype(np.int64)).to(runner._device))
    reference: Float32Array = samples.cpu().numpy()
    del decoder, samples
    torch.cuda.empty_cache()
    made: dict[CodecDtypeName, Code2WavRunner] = {runner.format: runner}

    def runner_in(name: CodecDtypeName) -> Code2WavRunner:
        if name not in made:
            made.clear()
            made[name] = Code2WavRunner(checkpoint, config.but(code2wav_dtype=name))
        return made[name]

    name, why = choose_format(lambda name: agreement_db(runner_in(name).speak(codes), reference))
    return runner_in(name), why


def speak_plainly(decoder: Code2Wav, codes: Tensor) -> Tensor:
    """Decode a whole speech, codes [frames, codebooks] int64, without fused kernels -> samples [frames * frame_samples]
    in +-1."""
    samples: Tensor = decoder.step(codes[None], decoder.new_state(1), codes.new_zeros(1))[0]
    return samples


def _compiled(checkpoint: Checkpoint, config: EngineConfig) -> CompiledCode2Wav | None:
    functions, sizes = library(), checkpoint.codec.decoder
    if functions is None or not fits(sizes):
        return None
    return CompiledCode2Wav(functions, sizes, load_arranged(checkpoint, config))


def _fused(decoder: Code2Wav) -> DecoderOnGpu:
    from sonorant.engine.model.codec.code2wav_fused import (
        FusedCode2Wav,  # here, because Triton comes with CUDA builds of torch only
    )

    return FusedCode2Wav(decoder)


@contextmanager
def _float32_products(precision: str) -> Iterator[None]:
    """Set how CUDA multiplies float32 inside the block: "ieee", or "tf32" with 10 bits of mantissa. PyTorch's default
    is tf32 for convolutions only."""
    convolutions, products = torch.backends.cudnn.conv, torch.backends.cuda.matmul  # type: ignore[attr-defined]
    kept = convolutions.fp32_precision, products.fp32_precision
    convolutions.fp32_precision = products.fp32_precision = precision
    try:
        yield
    finally:
        convolutions.fp32_precision, products.fp32_precision = kept
