"""Runs the decoder on its device: owns the weights and the state of every slot; one call decodes frames of some slots.

Knows slots, not streams, and does not decide what is decoded when.

A call is done in one or more passes of the network. On the CPU a pass has the shape of the call, up to a bound. On CUDA
there are a few shapes, each a graph captured at the start. The batcher asks for no others to be heard, and they suffice
for every call: a number of frames is a chunk size or a sum of chunk sizes (streaming is exact), and missing rows are
padded with a slot that no stream has.
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
from sonorant.engine.code2wav.context import DecoderContext
from sonorant.engine.code2wav.formats import agreement_db, choose_format
from sonorant.engine.code2wav.passes import row_sizes, split
from sonorant.engine.config import CodecDtypeName, EngineConfig
from sonorant.engine.cpu.codec import CompiledCode2Wav, fits
from sonorant.engine.cpu.library import library
from sonorant.engine.cuda import Buckets, bucket_sizes, download, find_device
from sonorant.engine.errors import EngineError
from sonorant.engine.model.code2wav import UNUSED_TENSORS, Code2Wav
from sonorant.engine.model.code2wav_state import CodecState
from sonorant.engine.model.weights import TensorFile, init_random, load_module
from sonorant.engine.types import Float32Array, Int16Array, Int64Array, PassCounts

log = logging.getLogger(__name__)

PCM_SCALE = 32767.0

# Frames of all rows together in one pass, which bounds the memory of its activations (about 5 MB per frame in the
# published size).
MAX_PASS_FRAMES = {"cpu": 96, "cuda": 1024}

# Frames of a row that one call of `remember` should take. On the CPU, such a call costs as much as decoding one or two
# frames, and each further frame adds little. On CUDA, the frames are decoded like others, with the same graphs.
REMEMBERED_FRAMES = {"cpu": 128, "cuda": 32}

TIMED_CALLS = 3

_DTYPES: dict[CodecDtypeName, torch.dtype] = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
}


class Decoder(Protocol):
    """The network, made of plain torch operations, of compiled functions or of fused kernels."""

    def new_state(self, num_slots: int) -> CodecState: ...

    def step(self, codes: Tensor, state: CodecState, slots: Tensor) -> Tensor: ...


class Code2WavRunner:
    def __init__(self, checkpoint: Checkpoint, config: EngineConfig, *, float_output: bool = False) -> None:
        self.frame_samples = checkpoint.codec.frame_samples
        self.num_slots = config.talker.num_slots
        self.passes = PassCounts()
        self._pcm_dtype = torch.float32 if float_output else torch.int16
        self._device = find_device(config.code2wav.device)
        self._max_pass_frames = MAX_PASS_FRAMES[self._device.type]
        self._matmul = "tf32" if config.code2wav.dtype == "tf32" else "ieee"
        if self._matmul == "tf32" and self._device.type == "cpu":
            raise EngineError("code2wav_dtype tf32 needs a CUDA device; use float32")
        self.format = config.code2wav.dtype
        dtype = _DTYPES[self.format]
        decoder = _load(checkpoint, config, self._device, dtype)
        self.context = DecoderContext(decoder.receptive_frames, REMEMBERED_FRAMES[self._device.type])
        self._num_codebooks = checkpoint.codec.decoder.num_quantizers
        self._buckets: dict[int, Buckets] = {}  # by number of frames
        with torch.inference_mode():
            is_fused = dtype == torch.float16 and self._device.type == "cuda"
            is_small = self._device.type == "cpu" and dtype == torch.float32 and fits(decoder)
            plain = _compiled(decoder) if is_small else decoder
            self._decoder: Decoder = _fused(decoder) if is_fused else plain
            self._state = self._decoder.new_state(config.num_codec_states)
            if self._device.type == "cuda":
                self._make_buckets(config)
        self._remembering = plain if self._device.type == "cpu" else None
        self._warm_up(config.code2wav.chunk_ramp)

    @property
    def pass_sizes(self) -> Sequence[int]:
        """The numbers of frames that a row may have in one pass, ascending."""
        return sorted(self._buckets) or range(1, self._max_pass_frames + 1)

    def reset(self, slot: int, num_frames: int = 0) -> None:
        """Forget the stream that the slot had before. The next one is decoded from frame `num_frames` on.

        If that is not 0, the state is right only after `context.receptive_frames` frames, and the audio of these is
        wrong.
        """
        with torch.inference_mode():
            self._state.reset(slot, num_frames)

    def copy(self, source: int, target: int) -> None:
        """Copy the state of slot `source` to slot `target`."""
        with torch.inference_mode():
            self._state.copy(source, target)

    @torch.inference_mode()
    def decode(self, slots: Sequence[int], codes: Int16Array) -> Int16Array | Float32Array:
        """Decode the next frames of some slots: [rows, frames, codebooks] -> samples [rows, frames * frame_samples]."""
        num_rows, num_frames = codes.shape[:2]
        columns = np.empty((1 + num_frames * self._num_codebooks, num_rows), np.int64)
        columns[0] = slots
        columns[1:] = codes.reshape(num_rows, -1).T
        frames = split(num_frames, self.pass_sizes)
        is_one_pass = len(frames) == len(split(num_rows, self._row_sizes(num_frames))) == 1
        samples = self._pass(num_frames, columns) if is_one_pass else self._in_passes(columns, frames)
        array: Int16Array | Float32Array = download(samples).numpy()
        return array

    def _in_passes(self, columns: Int64Array, frames: Sequence[slice]) -> Tensor:
        """Run a call whose frames are divided like this among passes, and rows as the passes allow."""
        shape = columns.shape[1], frames[-1].stop * self.frame_samples
        samples = torch.empty(shape, dtype=self._pcm_dtype, device=self._device)
        slots, codes = columns[:1], columns[1:]
        for part in frames:
            size = part.stop - part.start
            codes_of_part = codes[part.start * self._num_codebooks : part.stop * self._num_codebooks]
            place = slice(part.start * self.frame_samples, part.stop * self.frame_samples)
            for rows in split(columns.shape[1], self._row_sizes(size)):
                samples[rows, place] = self._pass(size, np.concatenate([slots[:, rows], codes_of_part[:, rows]]))
        return samples

    @torch.inference_mode()
    def remember(self, slots: Sequence[int], codes: Int16Array) -> None:
        """Take the frames into the slots' state as `decode` does, without making audio."""
        if self._remembering is None:
            self.decode(slots, codes)
            return
        self.passes.add(len(slots), len(slots))
        self._remembering.remember(torch.from_numpy(codes.astype(np.int64)), self._state, torch.tensor(slots))

    def speak(self, codes: Int16Array) -> Float32Array:  # [frames, codebooks]
        """Decode a whole speech at once; samples are in +-1. It uses slot 0: call it only when there are no streams."""
        samples: Float32Array = self.decode([0], codes[None])[0].astype(np.float32)
        self.reset(0)
        return samples if self._pcm_dtype.is_floating_point else samples / np.float32(PCM_SCALE)

    def frame_time(self) -> float:
        """Measure the seconds that a frame of one stream takes in full calls. Call it only while there are no streams:
        it changes their slots."""
        num_frames = max(self._buckets)
        num_rows = min(self.num_slots, self._row_sizes(num_frames)[-1])
        codes = np.zeros((num_rows, num_frames, self._num_codebooks), np.int16)
        times_s = []
        for _ in range(TIMED_CALLS):
            began_s = time.perf_counter()
            self.decode(range(num_rows), codes)
            times_s.append(time.perf_counter() - began_s)
        # The quickest counts: other work on the GPU, such as the talker getting ready, may have slowed the others.
        return min(times_s) / codes[..., 0].size

    def _row_sizes(self, num_frames: int) -> Sequence[int]:
        """The numbers of rows that a pass of so many frames may have, ascending."""
        buckets = self._buckets.get(num_frames)
        return range(1, 1 + (buckets.sizes[-1] if buckets else max(1, self._max_pass_frames // num_frames)))

    def _pass(self, num_frames: int, columns: Int64Array) -> Tensor:
        if self._buckets:
            return self._buckets[num_frames](columns, self._device)
        self.passes.add(columns.shape[1], columns.shape[1])
        return self._step(num_frames, torch.from_numpy(columns))

    def _step(self, num_frames: int, columns: Tensor) -> Tensor:
        """Run one pass. `columns` [1 + frames * codebooks, rows] int64: the slot and the codes of each row."""
        codes = columns[1:].T.reshape(-1, num_frames, self._num_codebooks)
        with _float32_products(self._matmul):
            samples = self._decoder.step(codes, self._state, columns[0]).float()
        return samples if self._pcm_dtype.is_floating_point else samples.mul_(PCM_SCALE).round_().to(self._pcm_dtype)

    def _make_buckets(self, config: EngineConfig) -> None:
        started_s = time.monotonic()
        shapes = [
            (num_rows, num_frames)
            for num_frames in {1, *config.code2wav.chunk_ramp}
            for num_rows in row_sizes(bucket_sizes(config.code2wav.max_decode_batch), num_frames, self._max_pass_frames)
        ]
        for num_frames in {1, *config.code2wav.chunk_ramp}:
            padding = [config.num_codec_states - 1, *[0] * (num_frames * self._num_codebooks)]
            sizes = [rows for rows, frames in shapes if frames == num_frames]
            self._buckets[num_frames] = Buckets(partial(self._step, num_frames), padding, sizes, self.passes)
        if config.enforce_eager:
            return
        pool = torch.cuda.graph_pool_handle()
        for num_rows, num_frames in sorted(shapes, key=lambda shape: shape[0] * shape[1], reverse=True):
            self._buckets[num_frames].capture(num_rows, self._device, pool)
        torch.cuda.empty_cache()  # give the memory of the first calls back, so that the talker process can use it
        log.info("captured %d graphs in %.1f s", len(shapes), time.monotonic() - started_s)

    def _warm_up(self, chunk_sizes: Sequence[int]) -> None:
        """Make the first call of each shape, which is slow, so that it does not delay a stream's first audio."""
        for num_frames in sorted(set(chunk_sizes)):
            self.decode([0], np.zeros((1, num_frames, self._num_codebooks), np.int16))
        self.reset(0)


def runner_in_fitting_format(
    runner: Code2WavRunner, checkpoint: Checkpoint, config: EngineConfig, codes: Int16Array
) -> tuple[Code2WavRunner, str]:
    """Return `runner` if its samples of `codes` [frames, codebooks] agree with those of float32, else a runner in a
    slower format; and a text that says why."""
    decoder = _load(checkpoint, config, runner._device, torch.float32)
    with torch.inference_mode(), _float32_products("ieee"):
        columns = torch.from_numpy(codes.astype(np.int64)).to(runner._device)[None]
        samples = decoder.step(columns, decoder.new_state(1), torch.zeros(1, dtype=torch.int64, device=runner._device))
    reference: Float32Array = samples[0].cpu().numpy()
    del decoder, samples
    made: dict[CodecDtypeName, Code2WavRunner] = {runner.format: runner}

    def runner_in(name: CodecDtypeName) -> Code2WavRunner:
        if name not in made:
            made.clear()
            made[name] = Code2WavRunner(checkpoint, config.but(code2wav_dtype=name))
        return made[name]

    name, why = choose_format(lambda name: agreement_db(runner_in(name).speak(codes), reference))
    return runner_in(name), why


def _load(checkpoint: Checkpoint, config: EngineConfig, device: torch.device, dtype: torch.dtype) -> Code2Wav:
    """Return the decoder with its weights, ready to `step`."""
    with torch.device("meta"):
        decoder = Code2Wav(checkpoint.codec.decoder)
    if config.load_format == "dummy":
        init_random(decoder, device, dtype, config.seed)
        decoder.damp_random_weights()
    else:
        file = TensorFile(checkpoint.folder / "speech_tokenizer" / "model.safetensors")
        load_module(decoder, file, "decoder.", device, dtype, optional_unused=UNUSED_TENSORS)
    with torch.inference_mode():
        decoder.prepare()
    return decoder


def _compiled(decoder: Code2Wav) -> "Code2Wav | CompiledCode2Wav":
    functions = library()
    return decoder if functions is None else CompiledCode2Wav(functions, decoder)


def _fused(decoder: Code2Wav) -> Decoder:
    from sonorant.engine.model.code2wav_fused import (
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
