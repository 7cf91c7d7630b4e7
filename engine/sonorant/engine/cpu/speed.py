"""Forecasts how fast a checkpoint with rounded weights runs on this CPU, before anything is loaded.

A frame of the talker reads its weights once, and those of the code predictor once for each further codebook, so memory
limits it; with many streams its multiplications do, as they limit Code2Wav. Both run at the same time.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import nn

from sonorant.engine.checkpoint.config import Checkpoint, CodecDecoderConfig
from sonorant.engine.model.codec.code2wav import Code2Wav, LatentUpsampling, UpsamplingBlock
from sonorant.engine.model.rounded import Rounding, use_rounded
from sonorant.engine.model.talker import Talker

MEASURED_S = 0.4
READ_FLOATS = 2**26  # more than a cache holds
SIDE = 512  # of the matrices that are multiplied
MOST_LISTENERS = 1024


@dataclass(frozen=True, slots=True)
class Speed:
    """What this CPU does in a second for the talker and for Code2Wav, while both work."""

    bytes_read: float
    multiplications: float


@dataclass(frozen=True, slots=True)
class FrameWork:
    """What a frame of 80 ms needs."""

    talker_bytes: int  # for all streams together
    talker_multiplications: int  # for each stream, as those of Code2Wav
    code2wav_multiplications: int

    def real_time_factor(self, speed: Speed, streams: int, frame_s: float) -> float:
        """Seconds of work for a second of speech of all streams, of the worker that takes longer."""
        products_s = streams / speed.multiplications
        talker_s = max(self.talker_bytes / speed.bytes_read, self.talker_multiplications * products_s)
        return max(talker_s, self.code2wav_multiplications * products_s) / frame_s

    def listeners(self, speed: Speed, frame_s: float) -> int:
        """How many streams run in real time."""
        fitting = (n for n in range(MOST_LISTENERS, 0, -1) if self.real_time_factor(speed, n, frame_s) <= 1)
        return next(fitting, 0)


def rounded_work(checkpoint: Checkpoint, rounding: Rounding) -> FrameWork:
    with torch.device("meta"):
        talker = Talker(checkpoint)
        use_rounded(talker, rounding)
    predictor = talker.code_predictor
    later = checkpoint.talker.num_codebooks - 1
    once = _matrix_bytes(talker.model.layers) + _matrix_bytes(talker.codec_head) + _matrix_bytes(predictor.lm_head)
    each = _matrix_bytes(predictor.model.layers) + _matrix_bytes(predictor.small_to_mtp_projection)
    num_bytes = once + later * each  # the predictor's first call has two rows
    num_weights = num_bytes * 8 // rounding.bits  # and a few scales
    return FrameWork(num_bytes, num_weights, code2wav_multiplications(checkpoint.codec.decoder))


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


def measured_speed(threads: int) -> Speed:
    """Measure for half a second, with so many threads for reading and as many for products at the same time."""
    numbers, matrix = torch.ones(READ_FLOATS), torch.rand(SIDE, SIDE)
    with ThreadPoolExecutor(2) as pool:
        reads = pool.submit(_per_second, threads, lambda: numbers.sum())
        products = pool.submit(_per_second, threads, lambda: matrix @ matrix)
        return Speed(reads.result() * numbers.nbytes, products.result() * SIDE**3)


def _per_second(threads: int, call: Callable[[], object]) -> float:
    torch.set_num_threads(threads)
    call()
    times_s: list[float] = []
    while sum(times_s) < MEASURED_S:
        began_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - began_s)
    return 1 / statistics.median(times_s)


def _matrix_bytes(module: nn.Module) -> int:
    return sum(weight.nbytes for weight in module.parameters() if weight.dtype == torch.int8)


def _num_weights(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters() if weight.dim() > 1)
