"""How many CPU threads workers get, and when talker and Code2Wav take turns."""

import os
from pathlib import Path

import pytest
import torch

from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, PRESETS_DIR
from sonorant.engine.config import EngineConfig
from sonorant.engine.talker.first_chunk import CodecTurn
from sonorant.engine.talker.process import _wait
from sonorant.engine.workers.auto import with_threads

LARGE = PRESETS_DIR / "qwen3-tts-12hz-0.6b-customvoice"
CPU = torch.device("cpu")


def config(model: Path, threads: int = 0) -> EngineConfig:
    return EngineConfig.of(model, talker_device="cpu", code2wav_device="cpu", cpu_threads=threads)


@pytest.mark.parametrize(
    ("model", "num_pairs", "num_cores", "threads", "wait"),
    [
        (LARGE, 1, 2, 2, CodecTurn),
        (LARGE, 1, 4, 4, CodecTurn),
        (LARGE, 1, 8, 4, None),
        (LARGE, 1, 1, 1, None),
        (LARGE, 2, 4, 1, None),
        (BUILTIN_VOICE_DIR, 1, 4, 2, None),
    ],
)
def test_a_large_model_on_few_cores_has_them_all_in_each_worker_in_turns(
    model: Path,
    num_pairs: int,
    num_cores: int,
    threads: int,
    wait: type[CodecTurn] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(num_cores)))
    assert [each.cpu_threads for each in with_threads([config(model)] * num_pairs)] == [threads] * num_pairs
    assert _wait(config(model, threads), CPU) is wait


def test_the_workers_of_all_pairs_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    without = config(BUILTIN_VOICE_DIR)
    for num_pairs, threads in ((1, 8), (4, 2), (40, 1)):
        assert {each.cpu_threads for each in with_threads([without] * num_pairs)} == {threads}
    (chosen,) = with_threads([without.but(cpu_threads=3)])
    assert (chosen.threads("talker"), chosen.threads("code2wav")) == (3, 3)
