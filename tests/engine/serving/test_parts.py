"""Worker pairs shared out among server processes."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sonorant.engine import EngineConfig, shared_out
from sonorant.engine.serving.parts import parts_of

ONE, OTHER = Path("one"), Path("other")


def pair(model: Path = ONE, device: str = "cuda", *, standby: bool = False) -> EngineConfig:
    return replace(EngineConfig.of(model, talker_device=device, kv_memory_share=0.6), is_standby=standby)


def shares(parts: Sequence[Sequence[EngineConfig]]) -> list[list[tuple[float, float]]]:
    """Of the GPU's time and of its memory."""
    return [[(config.gpu_share, round(config.talker.kv_memory_share, 6)) for config in part] for part in parts]


def test_each_part_gets_pairs_of_each_checkpoint() -> None:
    parts = parts_of([pair(ONE)] * 3 + [pair(OTHER)] * 2, 2)
    assert [[config.model for config in part] for part in parts] == [[ONE, ONE, OTHER], [ONE, OTHER]]


def test_standbys_come_after_the_busy_pairs() -> None:
    parts = parts_of([pair()] * 2 + [pair(standby=True)], 2)
    assert [[config.is_standby for config in part] for part in parts] == [[False, True], [False]]


def test_parts_on_one_gpu_share_its_time_and_its_memory() -> None:
    assert shares(parts_of([pair()] * 2, 2)) == [[(0.5, 0.3)], [(0.5, 0.3)]]


def test_a_part_with_more_pairs_has_more_of_the_memory() -> None:
    """It shares that among them when it starts them: 0.4 for two."""
    assert shares(parts_of([pair()] * 3, 2)) == [[(0.5, 0.4), (0.5, 0.4)], [(0.5, 0.2)]]


def test_a_part_with_a_gpu_of_its_own_has_all_of_it() -> None:
    assert shares(parts_of([pair(device="cuda:0"), pair(device="cuda:1")], 2)) == [[(1, 0.6)], [(1, 0.6)]]


def test_all_workers_together_have_a_thread_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    parts = parts_of([pair()] * 4 + [pair(standby=True)], 2)
    assert {config.cpu_threads for part in parts for config in part} == {2}
    assert parts_of([pair().but(cpu_threads=3)] * 2, 2)[0][0].cpu_threads == 3


async def test_no_daemon_is_started_for_the_cpu(tiny: Path) -> None:
    configs = [EngineConfig.of(tiny, talker_device="cpu", code2wav_device="cpu", num_slots=-1)] * 2
    async with shared_out(configs, 2, "auto") as ((one,), (other,)):
        assert one == other and one.talker.num_slots == 32 and one.mps_pipe_directory is None
