"""Forecasts how fast a checkpoint with rounded weights runs on this CPU, before anything is loaded.

A frame of the talker reads its weights once, and those of the code predictor once for each further codebook, so memory
limits it; with many streams its multiplications do. Code2Wav reads its weights once for a chunk, and multiplies more.
"""

import statistics
import time
from collections.abc import Callable
from ctypes import byref
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from sonorant.engine.checkpoint.config import Checkpoint, CodecDecoderConfig
from sonorant.engine.cpu.codec_weights import ROUNDS
from sonorant.engine.cpu.library import Kept, library
from sonorant.engine.cpu.model import FORMATS
from sonorant.engine.cpu.packing import conv_of
from sonorant.engine.model.codec.code2wav import Code2Wav, LatentUpsampling, UpsamplingBlock
from sonorant.engine.model.rounded import TILE, Rounding, use_rounded
from sonorant.engine.model.talker import Talker

MEASURED_S = 0.2  # for each number
MOST_READ = 2**28  # bytes: more than a cache holds
INPUTS = 1024  # of the matrices that are read
TIMED_ROWS = 8  # of products that multiplications limit
CHANNELS, TAPS, POSITIONS = 384, 7, 160  # of the convolution, one of Code2Wav's
FORECAST_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Speed:
    """What this CPU does in a second for a worker, with the functions that compute frames."""

    talker_bytes: float  # of the talker's weights, for one row
    predictor_bytes: float  # of those of the code predictor, which may stay in a cache
    products: float  # multiplications of the talker, for many rows
    convolutions: float  # multiplications of Code2Wav


@dataclass(frozen=True, slots=True)
class FrameWork:
    """What a frame of 80 ms needs."""

    talker_bytes: int  # read once for all streams together, like the next one
    predictor_bytes: int  # what is read for one of the further codebooks
    later_codebooks: int
    products: int  # for each stream, like the convolutions
    convolutions: int
    code2wav_bytes: int  # for a chunk

    def step_s(self, speed: Speed, rows: int) -> float:
        """How long talker and code predictor take for a frame of so many streams."""
        read_s = self.talker_bytes / speed.talker_bytes
        read_s += self.later_codebooks * self.predictor_bytes / speed.predictor_bytes
        return max(read_s, rows * self.products / speed.products)

    def codec_s(self, speed: Speed) -> float:
        """How long Code2Wav takes for a frame that comes alone."""
        return self.convolutions / speed.convolutions + self.code2wav_bytes / speed.talker_bytes

    def steps_s(self, speed: Speed) -> dict[int, float]:
        """What a talker measures when it starts."""
        return {rows: self.step_s(speed, rows) for rows in FORECAST_ROWS}


def rounded_work(checkpoint: Checkpoint, rounding: Rounding) -> FrameWork:
    with torch.device("meta"):
        talker = Talker(checkpoint)
        use_rounded(talker, rounding)
        decoder = Code2Wav(checkpoint.codec.decoder)
    predictor, later = talker.code_predictor, checkpoint.talker.num_codebooks - 1
    once = _matrix_bytes(talker.model.layers) + _matrix_bytes(talker.codec_head)
    each = _matrix_bytes(predictor.model.layers) + _matrix_bytes(predictor.small_to_mtp_projection)
    each += _matrix_bytes(predictor.lm_head) // later  # one head for each
    products = (once + (later + 1) * each) * 8 // rounding.bits  # the first has two rows for a stream
    convolved = _num_weights(decoder) - _num_weights(decoder.quantizer)
    multiplications = code2wav_multiplications(checkpoint.codec.decoder)
    return FrameWork(once, each, later, products, multiplications, convolved * (2 if ROUNDS else 4))


def code2wav_multiplications(config: CodecDecoderConfig) -> int:
    """Multiplications of a frame: those of each layer's weights at each position of its input."""
    with torch.device("meta"):
        decoder = Code2Wav(config)
    total, positions = _num_weights(decoder.pre_conv) + _num_weights(decoder.pre_transformer), 1
    for stage in (*decoder.upsample, *decoder.decoder):
        if not isinstance(stage, LatentUpsampling | UpsamplingBlock):
            total += positions * _num_weights(stage)
            continue
        up, rate = (stage[0], stage.ratio) if isinstance(stage, LatentUpsampling) else (stage.block[1], stage.rate)
        total += positions * _num_weights(up) + positions * rate * (_num_weights(stage) - _num_weights(up))
        positions *= rate
    return total


def measured_speed(work: FrameWork, rounding: Rounding) -> Speed:
    """Measure for a second, with the threads of `sonorant.engine.cpu.library.use_threads`."""
    functions = library()
    assert functions is not None, "without them no weights are rounded"
    threads = functions.use_threads(1)  # only the first call has an effect
    matrix = rounding.pack(torch.randn(INPUTS, INPUTS))

    def products(num_bytes: int, rows: int) -> float:
        """Bytes of a matrix of this size that are multiplied with so many rows in a second."""
        weights = matrix.repeat(max(1, min(num_bytes, MOST_READ) // matrix.nbytes), 1)
        num_out = len(weights) * TILE
        x, y = torch.randn(rows, INPUTS), torch.empty(rows, num_out)
        shape = rows, INPUTS, num_out, FORMATS[rounding.name]
        call = partial(functions.multiply_rows, y.data_ptr(), x.data_ptr(), weights.data_ptr(), *shape)
        return weights.nbytes * _per_second(call, threads)

    weights_in_a_byte = 8 // rounding.bits
    return Speed(
        products(work.talker_bytes, 1),
        products(work.predictor_bytes, 1),
        products(work.predictor_bytes, TIMED_ROWS) * TIMED_ROWS * weights_in_a_byte,
        _convolutions(functions, threads),
    )


def _convolutions(functions: Any, threads: int) -> float:
    kept = Kept()
    conv = conv_of(kept, torch.randn(CHANNELS, CHANNELS, TAPS), rounded=ROUNDS)
    x, y = torch.randn(POSITIONS + TAPS - 1, CHANNELS), torch.empty(POSITIONS, CHANNELS)
    call = partial(functions.convolve_positions, y.data_ptr(), x.data_ptr(), byref(conv), POSITIONS)
    return _per_second(call, threads) * POSITIONS * CHANNELS * CHANNELS * TAPS


def _per_second(call: Callable[[], object], threads: int) -> float:
    """How often it could be called by processor time, shared by the threads, as workers measure their frames: what
    other programs do at the moment does not count."""
    call()
    times_s: list[float] = []
    while sum(times_s) < MEASURED_S:
        began_s = time.process_time()
        call()
        times_s.append(time.process_time() - began_s)
    return threads / statistics.median(times_s)


def _matrix_bytes(module: nn.Module) -> int:
    return sum(weight.nbytes for weight in module.parameters() if weight.dtype == torch.int8)


def _num_weights(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters() if weight.dim() > 1)
