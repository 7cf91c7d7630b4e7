"""Which card a device name means, told by a stand-in of the driver's library; and sizes from it for worker pairs."""

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sonorant.engine.card import driver
from sonorant.engine.card.card import GIB, Card
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.config import EngineConfig
from sonorant.engine.errors import EngineError
from sonorant.engine.workers import auto
from sonorant.settings import AUTO

CARDS = {
    name: Card.of(text, capability, total_gib * GIB, free_gib * GIB, multiprocessors=132)
    for name, text, capability, total_gib, free_gib in [
        ("0", "Large", (9, 0), 141, 141),
        ("1", "Small", (8, 9), 24, 24),
        ("2", "Shared", (9, 0), 80, 8),
        ("3", "Old", (7, 5), 16, 16),
        ("GPU-beef", "Named", (9, 0), 80, 80),
    ]
}


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
        memory._obj.total, memory._obj.free = self._found.memory_bytes, self._found.free_bytes
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, _handle: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = self._found.capability
        return 0

    def nvmlDeviceGetName(self, _handle: Any, text: Any, _size: Any) -> int:
        text.value = self._found.name.encode()
        return 0

    def nvmlDeviceGetNumGpuCores(self, _handle: Any, cores: Any) -> int:
        cores._obj.value = 16896
        return 0

    def _choose(self, name: str) -> int:
        if name not in CARDS:
            return 6
        self._found = CARDS[name]
        return 0


@pytest.fixture(autouse=True)
def _driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(auto, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(driver, "DEVICES", tmp_path)
    monkeypatch.setattr(driver, "_torch_has_cuda", lambda: True)
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
    assert driver.find_card(device) == next(card for card in CARDS.values() if card.name == name)


@pytest.mark.parametrize("device, visible", [("cpu", "0"), ("auto", ""), ("auto", "-1"), ("cuda:1", "0")])
def test_no_card(device: str, visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert driver.find_card(device) is None


def test_a_card_that_nothing_is_told_of_is_taken_for_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-unknown")
    found = driver.find_card("auto")
    assert found is not None and found.memory_bytes == 16 * GIB


def test_pairs_of_one_card_share_it() -> None:
    config = EngineConfig.of(resolve_model("qwen3-tts-12hz-1.7b-customvoice"), num_slots=AUTO)
    alone, *shared = auto.sized([config.but(talker_device="cuda:1"), config, config.but(talker_device="cuda:0")])
    assert [each.talker.num_slots for each in (alone, *shared)] == [256, 1024, 1024]


def test_a_pair_that_wants_a_standby_keeps_its_slots_and_has_one_where_both_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    config = EngineConfig.of(resolve_model("qwen3-tts-12hz-1.7b-customvoice"), num_slots=AUTO)
    wants = replace(config, wants_standby=True)
    (alone,) = auto.sized([config])
    pair, standby = auto.sized([wants])
    assert pair == replace(alone, memory_bytes=alone.memory_bytes // 2)
    assert standby == replace(pair, is_standby=True)
    assert f"with a standby: a second pair of {pair.talker.num_slots} slots" in caplog.text
    assert auto.sized([pair, standby]) == [pair, standby], "what was chosen stays"

    (small,) = auto.sized([replace(wants, gpu_memory_gib=16.0)])
    assert small == auto.sized([replace(config, gpu_memory_gib=16.0)])[0]
    assert "no standby: the GPU's memory has no room" in caplog.text


def test_a_pair_on_the_cpu_has_no_standby_unless_asked() -> None:
    (found,) = auto.sized([EngineConfig(BUILTIN_VOICE_DIR, wants_standby=True).but(talker_device="cpu")])
    assert not found.is_standby


def test_a_pair_on_the_cpu_has_the_sizes_of_the_cpu() -> None:
    config = EngineConfig.of(BUILTIN_VOICE_DIR, num_slots=AUTO, max_decode_batch=AUTO, talker_device="cpu")
    (found,) = auto.sized([config])
    assert (found.talker.num_slots, found.code2wav.max_decode_batch) == (32, 32)


def test_a_card_shared_with_another_program_gives_sizes_for_what_is_free(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    config = EngineConfig.of(resolve_model("qwen3-tts-12hz-1.7b-customvoice"), num_slots=AUTO, talker_device="cuda:2")
    (found,) = auto.sized([config])
    assert (found.talker.num_slots, found.memory_bytes) == (8, 8 * GIB)
    assert "8.0 GiB of Shared (8.0 GiB of its 80.0 GiB are free): num_slots 8" in caplog.text


def test_a_server_takes_no_more_than_it_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    model = resolve_model("qwen3-tts-12hz-1.7b-customvoice")
    config = EngineConfig.of(model, num_slots=AUTO, talker_device="cuda:0", gpu_memory_gib=24.0)
    found = auto.sized([config, config])
    assert [(each.talker.num_slots, each.memory_bytes) for each in found] == [(64, 12 * GIB)] * 2
    assert "--gpu-memory-gib is 24, for 2 pairs)" in caplog.text


def test_what_is_missing_is_told_before_anything_is_loaded() -> None:
    config = EngineConfig.of(resolve_model("qwen3-tts-12hz-1.7b-customvoice"), gpu_memory_gib=4.0)
    with pytest.raises(EngineError, match=r"needs 7\.\d GiB and may take 4.0 GiB of Large .*allow more"):
        auto.sized([config])


def test_a_card_on_which_nothing_runs_is_refused() -> None:
    with pytest.raises(EngineError, match=r"Old has compute capability 7\.5"):
        auto.sized([EngineConfig.of(BUILTIN_VOICE_DIR, talker_device="cuda:3")])


def test_memory_that_a_killed_server_gives_back_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes in steps, between which nothing changes; another program's does not come."""
    monkeypatch.setattr(auto, "LOOK_AGAIN_S", 0.0)
    for frees_gib, looked, free_gib in (([80], 1, 80), ([8, 8, 8, 8, 8], 5, 8), ([8, 8, 8, 20, 20, 79], 6, 79)):
        left = [Card.of("Busy", (9, 0), 80 * GIB, free * GIB) for free in frees_gib]
        monkeypatch.setattr(auto, "find_card", lambda _device, left=left: left.pop(0))
        found = auto._settled_card("auto")
        assert found is not None and found.free_bytes == free_gib * GIB
        assert len(frees_gib) - len(left) == looked
