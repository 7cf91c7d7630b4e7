from pathlib import Path

import pytest
import torch

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.config import EngineConfig
from sonorant.engine.errors import EngineError
from sonorant.engine.model.memory import UNLIMITED
from sonorant.engine.talker.run.kv_cache import fitting_num_pages, memory_budget_bytes

CHECKPOINT = load_checkpoint(PRESETS_DIR / "qwen3-tts-12hz-0.6b-base")
PAGE_BYTES = 16 * 57_344 * 2  # bfloat16


def fit(memory_bytes: int, **config: int) -> int:
    return fitting_num_pages(
        CHECKPOINT, EngineConfig.of(Path("."), num_slots=10, **config), torch.bfloat16, memory_bytes
    )


def test_as_many_as_the_slots_may_need() -> None:
    assert fit(10**15, max_context=1000) == 10 * 63
    default_positions = 512 + 8191
    assert fit(10**15, max_context=20_000) == max(20_000 // 16, 10 * -(-default_positions // 16))


def test_as_many_as_there_is_memory_for() -> None:
    assert fit(300 * PAGE_BYTES + 1, max_context=4096) == 300


def test_fewer_than_one_stream_may_need_is_an_error() -> None:
    with pytest.raises(EngineError, match=f"memory for 255 KV pages of {PAGE_BYTES} bytes, but .* needs 256"):
        fit(256 * PAGE_BYTES - 1, max_context=4096)


def test_the_configured_number_counts() -> None:
    assert fit(0, num_pages=7) == 7


def test_the_default_fits_here() -> None:
    config = EngineConfig(Path(".")).but(max_context=64)
    assert (
        fitting_num_pages(CHECKPOINT, config, torch.bfloat16, memory_budget_bytes(torch.device("cpu"), UNLIMITED))
        == config.talker.num_slots * 4
    )
