"""Forecasts how fast a checkpoint with rounded weights runs on this CPU, before any of it is loaded.

The functions that will compute its frames make a few with weights of the same sizes, all in memory of their own. So all
counts that a frame takes: what memory and caches bear, what one thread does while the others wait, and the waiting.

A virtual core often shares a real one with other customers of the host, who compute for a second or two at a time.
Frames then take half as long again, and nothing here shows why. So those of both workers come in turns for some
seconds, and the mean counts: the median of a few would be one of the two speeds.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import fmean

import torch
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.code2wav.run.loading import empty_code2wav
from sonorant.engine.code2wav.run.runner import CPU_TIMED_FRAMES
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.codec import CompiledCode2Wav
from sonorant.engine.cpu.codec_weights import codec_weights, conversion_of
from sonorant.engine.cpu.library import library
from sonorant.engine.model.rounded import TILE, RoundedEmbedding, RoundedLinear, Rounding
from sonorant.engine.model.talker import Talker
from sonorant.engine.talker.run.compiled import CompiledSteps
from sonorant.engine.talker.run.kv_cache import KVCache
from sonorant.engine.talker.run.loading import empty_rounded_talker
from sonorant.engine.talker.run.runner import MOST_TIMED_ROWS
from sonorant.engine.talker.run.slot_state import SlotArrays
from sonorant.engine.talker.schedule.rows import DecodeRow, DecodeRows

TURNS = 4
CALLS = 4  # of each worker in a turn, for one stream
POSITION = 64  # of the frames: a prompt, and some seconds of speech


@torch.inference_mode()
def forecast(checkpoint: Checkpoint, config: EngineConfig, rounding: Rounding) -> tuple[dict[int, float], float]:
    """Return the seconds that a frame takes: by rows, in talker and code predictor, and in Code2Wav."""
    step = _steps(checkpoint, config, rounding)
    alone: Callable[[], object] = partial(step, 1)
    together: Callable[[], object] = partial(step, MOST_TIMED_ROWS)
    codec = _code2wav(checkpoint)
    times_s: dict[Callable[[], object], list[float]] = {alone: [], together: [], codec: []}
    turn = [*[alone, codec] * CALLS, together]
    for call in times_s:
        call()
    for call in turn * TURNS:
        times_s[call].append(_seconds(call))
    one_s, most_s, codec_s = (fmean(each) for each in times_s.values())
    return {1: one_s, MOST_TIMED_ROWS: most_s}, codec_s / CPU_TIMED_FRAMES


def _steps(checkpoint: Checkpoint, config: EngineConfig, rounding: Rounding) -> Callable[[int], object]:
    """Return what makes frames of talker and code predictor: one for each of some rows."""
    functions, cpu = library(), torch.device("cpu")
    assert functions is not None, "without them no weights are rounded"
    config = config.but(num_slots=MOST_TIMED_ROWS)
    num_pages = config.talker.pages_for(POSITION + 1)  # of each row
    cache = KVCache(checkpoint.talker.stack, config.talker, MOST_TIMED_ROWS * num_pages, cpu, torch.float32)
    for slot in range(MOST_TIMED_ROWS):
        cache.assign(slot, range(slot * num_pages, (slot + 1) * num_pages))
    slots = SlotArrays(MOST_TIMED_ROWS, checkpoint, cpu, torch.float32)
    steps = CompiledSteps(functions, _talker(checkpoint, rounding), checkpoint, config, cache, slots)

    def frame(num_rows: int) -> None:
        rows = [DecodeRow(slot, 0, POSITION, frame_index=1, allow_eos=False) for slot in range(num_rows)]
        steps.step([], DecodeRows.of(rows))

    return frame


def _code2wav(checkpoint: Checkpoint) -> Callable[[], object]:
    """Return a call of Code2Wav."""
    functions, sizes = library(), checkpoint.codec.decoder
    decoder = empty_code2wav(checkpoint)
    decoder.load_state_dict({name: torch.zeros(each.shape) for name, each in decoder.state_dict().items()}, assign=True)
    decoder.prepare()
    compiled = CompiledCode2Wav(functions, sizes, codec_weights(decoder, conversion_of(decoder)))
    del decoder
    state, slots = compiled.new_state(1), torch.zeros(1, dtype=torch.int64)
    codes = torch.zeros(1, CPU_TIMED_FRAMES, sizes.num_quantizers, dtype=torch.int64)
    return lambda: compiled.step(codes, state, slots)


def _talker(checkpoint: Checkpoint, rounding: Rounding) -> Talker:
    talker = empty_rounded_talker(checkpoint, rounding)
    for module in talker.modules():
        for name, like in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(_weights(module, name, like), requires_grad=False))
    return talker


def _weights(module: nn.Module, name: str, like: Tensor) -> Tensor:
    """Noise; the same in all tiles of a matrix, and in all rows of a table."""
    if isinstance(module, RoundedLinear) and name == "weight":
        tile = torch.randn(TILE, module.num_in) / module.num_in**0.5
        return module.rounding.pack(tile).repeat(len(like), 1)
    if isinstance(module, RoundedEmbedding):
        return RoundedEmbedding.pack(torch.randn(1, module.size)).repeat(len(like), 1)
    return torch.zeros(like.shape, dtype=like.dtype) if like.dim() > 1 else torch.ones(like.shape, dtype=like.dtype)


def _seconds(call: Callable[[], object]) -> float:
    began_s = time.thread_time()  # what other programs here do at the moment hardly counts
    call()
    return time.thread_time() - began_s
