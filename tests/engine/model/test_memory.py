"""What is foretold of memory is what the loaded model takes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sonorant.engine.card.device import free_bytes
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.code2wav.run.runner import Code2WavRunner
from sonorant.engine.config import EngineConfig
from sonorant.engine.errors import EngineError
from sonorant.engine.model import memory
from sonorant.engine.model.memory import (
    CUDA_BYTES,
    MemoryNeed,
    allowed_beside_weights,
    check_fit,
    code2wav_need,
    talker_need,
)
from sonorant.engine.sizes import with_sizes
from sonorant.engine.talker.run.kv_cache import CUDA_SHARE
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.settings import AUTO
from tests.tiny_checkpoint import write_tiny_checkpoint

CPU = torch.device("cpu")


def test_it_is_what_the_workers_take(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path / "tiny")
    checkpoint = load_checkpoint(folder)
    config = EngineConfig.of(folder, num_slots=3, max_context=64, talker_device="cpu", code2wav_device="cpu")
    need, talker = talker_need(checkpoint, config), TalkerRunner(checkpoint, config)
    storage = talker._cache.storage
    pages = storage.shape[2] // config.talker.page_size - 1  # one is for padding
    assert storage.nbytes * pages // (pages + 1) == need.wanted_state
    assert need.state * 3 == need.wanted_state, "at least one stream has to fit"
    need, codec = code2wav_need(checkpoint, config), Code2WavRunner(checkpoint, config)
    state = codec._state
    assert state.tails.nbytes + state.keys.nbytes + state.values.nbytes == need.state


def test_the_published_sizes() -> None:
    """1.7B-CustomVoice in bfloat16: 112 KiB of keys and values per position."""
    checkpoint = load_checkpoint(PRESETS_DIR / "qwen3-tts-12hz-1.7b-customvoice")
    config = EngineConfig.of(checkpoint.folder, dtype="bfloat16", num_slots=1024, talker_device="cpu")
    need = talker_need(checkpoint, config)
    assert 3.3e9 < need.weights < 4.0e9
    assert need.state == 4096 * 28 * 2 * 8 * 128 * 2
    assert need.wanted_state == 1024 * need.state
    assert talker_need(checkpoint, config.but(num_pages=7)).state == 7 * 16 * 28 * 2 * 8 * 128 * 2
    half, full = (code2wav_need(checkpoint, config.but(code2wav_dtype=dtype)) for dtype in ("float16", "float32"))
    assert (2 * half.weights, 2 * half.state) == (full.weights, full.state)


@pytest.mark.parametrize(
    "gib, slots", [(8, 8), (12, 64), (16, 128), (24, 256), (48, 512), (80, 1024)], ids=lambda value: str(value)
)
def test_a_codec_that_does_not_agree_with_float16_fits_in_what_the_kv_cache_leaves(
    monkeypatch: pytest.MonkeyPatch, gib: int, slots: int
) -> None:
    """The KV cache is made for a codec in float16; in float32 that one has passes of half as many frames."""
    monkeypatch.setattr(memory, "find_device", lambda _: torch.device("cuda:0"))
    checkpoint = load_checkpoint(PRESETS_DIR / "qwen3-tts-12hz-1.7b-customvoice")
    config = replace(EngineConfig.of(checkpoint.folder, dtype="bfloat16"), memory_bytes=gib * 2**30)
    config = with_sizes(config.but(num_slots=AUTO, code2wav_dtype="auto", kept_references=AUTO), slots)
    half, full = (code2wav_need(checkpoint, config.but(code2wav_dtype=dtype)) for dtype in ("float16", "float32"))
    assert code2wav_need(checkpoint, config) == half
    assert full.activations == half.activations
    assert full.total - half.total < (1 - CUDA_SHARE) * allowed_beside_weights(checkpoint, config)


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    need = MemoryNeed(torch.device("cuda:0"), weights=4 * 2**30, state=2**29, wanted_state=2**33, activations=2**28)
    check_fit("the talker", need, need.total)
    assert need.total == 4 * 2**30 + 2**29 + 2**28 + CUDA_BYTES
    with pytest.raises(EngineError, match=r"the talker needs 5.5 GiB .*4.0 GiB for weights.* cuda:0 has 5.0 GiB free"):
        check_fit("the talker", need, 5 * 2**30)
    assert free_bytes(CPU) > 2**28
