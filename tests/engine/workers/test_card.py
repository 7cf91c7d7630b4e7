"""Which card a device name means, told by a stand-in of the driver's library; and sizes from it for worker pairs."""

import ctypes
from pathlib import Path
from typing import Any

import pytest

from sonorant.engine.checkpoint.config import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.config import EngineConfig
from sonorant.engine.sizes import Card
from sonorant.engine.workers import auto, card
from sonorant.settings import AUTO

GIB = 2**30
CARDS = {"0": ("Large", 141 * GIB), "1": ("Small", 24 * GIB), "GPU-beef": ("Named", 80 * GIB)}


class Nvml:
    """A stand-in for NVML with the functions that are used."""

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, _handle: Any) -> int:
        return self._choose(str(index.value))

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, _handle: Any) -> int:
        return self._choose(uuid.decode())

    def nvmlDeviceGetMemoryInfo(self, _handle: Any, memory: Any) -> int:
        memory._obj.total = self._found[1]
        return 0

    def nvmlDeviceGetName(self, _handle: Any, text: Any, _size: Any) -> int:
        text.value = self._found[0].encode()
        return 0

    def _choose(self, name: str) -> int:
        if name not in CARDS:
            return 6
        self._found = CARDS[name]
        return 0


@pytest.fixture(autouse=True)
def _driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(card, "DEVICES", tmp_path)
    monkeypatch.setattr(card, "_torch_has_cuda", lambda: True)
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Nvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    "device, visible, name",
    [
        ("auto", None, "Large"),
        ("cuda", None, "Large"),
        ("cuda:1", None, "Small"),
        ("auto", "1,0", "Small"),
        ("cuda:1", "1,0", "Large"),
        ("auto", "GPU-beef", "Named"),
    ],
)
def test_the_card_of_a_device(device: str, visible: str | None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert card.find_card(device) == Card(name, dict(CARDS.values())[name])


@pytest.mark.parametrize("device, visible", [("cpu", "0"), ("auto", ""), ("auto", "-1"), ("cuda:1", "0")])
def test_no_card(device: str, visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert card.find_card(device) is None


def test_a_card_that_nothing_is_told_of_is_taken_for_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-unknown")
    found = card.find_card("auto")
    assert found is not None and found.memory_bytes == 16 * GIB


def test_pairs_of_one_card_share_it() -> None:
    config = EngineConfig.of(resolve_model("qwen3-tts-12hz-1.7b-customvoice"), num_slots=AUTO)
    alone, *shared = auto.sized([config.but(talker_device="cuda:1"), config, config.but(talker_device="cuda:0")])
    assert [each.talker.num_slots for each in (alone, *shared)] == [256, 1024, 1024]


def test_a_pair_on_the_cpu_has_the_sizes_of_the_cpu() -> None:
    config = EngineConfig.of(BUILTIN_VOICE_DIR, num_slots=AUTO, max_decode_batch=AUTO, talker_device="cpu")
    (found,) = auto.sized([config])
    assert (found.talker.num_slots, found.code2wav.max_decode_batch) == (32, 32)
