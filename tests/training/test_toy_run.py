"""The whole chain in miniature: text, teacher, codec, talker, a checkpoint that the engine loads and speaks with."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file

from sonorant.engine.offline import synthesize
from sonorant.training.settings import TOY, TOY_BASE, TrainingSettings
from sonorant.training.teachers.flite import Flite
from sonorant.training.teachers.speech import TeacherUnavailable
from sonorant.training.text.sources import SCOWL_DIR, WORDNET_DIR

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
@pytest.mark.rare
@pytest.mark.timeout(420)  # eight processes that import torch, beside whatever else the machine does
@pytest.mark.filterwarnings("ignore")  # of matplotlib and of multiprocessing beside torch
@pytest.mark.parametrize("settings", [TOY, TOY_BASE], ids=["custom_voice", "base"])
def test_toy_run(tmp_path: Path, settings: TrainingSettings) -> None:
    require_sources()
    from sonorant.training.pipeline import DEFAULT_STAGES, Run, Stage, run_stages

    def run(stages: Sequence[Stage], codec_from: Path | None = None, *, goes_on: bool = False) -> Run:
        return Run(
            folder=tmp_path,
            settings=settings,
            stages=stages,
            device=torch.device("cpu"),
            ends_at_s=time.time() + 150,
            teacher_processes=1,
            codec_from=codec_from,
            weights_from=codec_from if goes_on else None,
            rate=1.0,
            seed=1,
            eager=False,
        )

    run_stages(run(DEFAULT_STAGES))  # it takes as many steps as a toy does, and no more
    assert (tmp_path / "talker.png").stat().st_size > 10_000
    model, clones = tmp_path / "checkpoint", settings.speakers is not None
    reference = tmp_path / "reference.wav"
    soundfile.write(reference, np.sin(np.arange(24000) / 30), 24000)
    for text in ("", "Hi.") if clones else ("",):  # by the voice alone, or as a continuation of the reference
        result = synthesize(
            "Hello.",
            model=model,
            max_frames=4,
            reference=reference if clones else None,
            reference_text=text,
            x_vector_only=clones and not text,
        )
        assert len(result.samples) == 1920 * len(result.codes) > 0
    before = {file: file.read_bytes() for file in model.rglob("*.safetensors")}
    run_stages(run(DEFAULT_STAGES))  # nothing is left to do, so it is over at once, with the same outcome
    assert len(before) == 2 and {file: file.read_bytes() for file in before} == before

    if not clones:
        return
    shutil.copytree(model, tmp_path / "other")
    run_stages(run(("decoder",), codec_from=tmp_path / "other"))
    old_talker = load_file(tmp_path / "other" / "model.safetensors")
    old, new = (load_file(folder / "speech_tokenizer" / "model.safetensors") for folder in (tmp_path / "other", model))
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed and all(name.startswith("decoder.") and "codebook" not in name for name in changed)
    assert all(new[name].isfinite().all() for name in changed)

    for state in tmp_path.glob("*.pt"):
        state.unlink()  # a new run, which goes on from the weights alone
    shutil.rmtree(model)
    run_stages(run(("codec", "codes", "talker"), codec_from=tmp_path / "other", goes_on=True))
    again = load_file(model / "model.safetensors")
    moved = max(float((tensor - old_talker[name]).abs().max()) for name, tensor in again.items())
    assert 0 < moved < 0.1  # thirty steps from where the other ended; random weights would be elsewhere

    (tmp_path / "text" / "tokenizer.json").unlink()
    run_stages(run(("text", "hearing"), codec_from=tmp_path / "other", goes_on=True))
    tokenizers = [folder / "tokenizer.json" for folder in (tmp_path / "text", tmp_path / "other")]
    assert tokenizers[0].read_bytes() == tokenizers[1].read_bytes()  # text ids are those of the weights
    heard = load_file(model / "model.safetensors")
    moved = max(float((tensor - old_talker[name]).abs().max()) for name, tensor in heard.items())
    assert 0 < moved < 0.1
