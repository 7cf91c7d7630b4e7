"""The whole chain in miniature: text, teacher, codec, talker, a checkpoint that the engine loads and speaks with."""

import time
from pathlib import Path

import pytest
import torch

from engine.offline import synthesize
from engine.training.flite import Flite, TeacherUnavailable
from engine.training.settings import TOY
from engine.training.text.sources import SCOWL_DIR, WORDNET_DIR

pytest.importorskip("matplotlib", reason="needs the extra [train]")


def require_sources() -> None:
    try:
        Flite()
    except TeacherUnavailable as error:
        pytest.skip(str(error))
    for folder, package in ((SCOWL_DIR, "scowl"), (WORDNET_DIR, "wordnet-base")):
        if not folder.is_dir():
            pytest.skip(f"{folder} is missing; on Debian: apt install {package}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of matplotlib and of multiprocessing beside torch
def test_toy_run(tmp_path: Path) -> None:
    require_sources()
    from engine.training.pipeline import Run, run_stages

    run_stages(
        Run(
            folder=tmp_path,
            settings=TOY,
            stages=("text", "codec", "talker"),
            device=torch.device("cpu"),
            ends_at_s=time.time() + 45,
            teacher_processes=1,
            codec_from=None,
            seed=1,
            eager=False,
        )
    )
    assert (tmp_path / "talker.png").stat().st_size > 10_000
    result = synthesize("Hello.", model=tmp_path / "checkpoint", max_frames=4)
    assert len(result.samples) == 1920 * len(result.codes) > 0
