"""With `weights = "fp8"` a checkpoint speaks as one whose weights were rounded before, in all kinds of steps."""

import asyncio
import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.library import library
from sonorant.engine.kernels.gemm.fp8 import round_in_place
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.types import Int16Array
from tests.engine.one_engine import start_engine
from tests.engine.speech import assert_same_speech, say, speech
from tests.engine.talker.driver import Utterance, prepare, run_alone
from tests.tiny_checkpoint import write_tiny_checkpoint

TEXT = "The quick brown fox jumps over the lazy dog and speaks slowly."
NUM_FRAMES = 12
ROUNDED = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "down_proj")
SIZES = {"compiled": {"head_dim": 16, "predictor_hidden": 32}, "plain": {}}


@pytest.fixture(scope="module", params=SIZES)
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint, and the same with rounded weights."""
    if request.param == "compiled" and library() is None:
        pytest.skip("installed without a C compiler")
    return make_folders(tmp_path_factory.mktemp("tiny"), **SIZES[request.param])


def make_folders(parent: Path, dtype: torch.dtype = torch.float32, **sizes: int) -> tuple[Path, Path]:
    folder = write_tiny_checkpoint(parent / "as-it-is", **sizes)
    other = Path(shutil.copytree(folder, parent / "rounded"))
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if name.startswith("talker.model.layers.") and name.removesuffix(".weight").endswith(ROUNDED):
            tensors[name] = tensor.to(dtype)
            round_in_place(tensors[name])
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    return folder, other


def config(folder: Path, *, device: str = "cpu", **settings: object) -> EngineConfig:
    of_all = {"num_slots": 4, "max_context": 512, "cpu_threads": 1}
    return EngineConfig.of(folder, talker_device=device, code2wav_device=device, **of_all, **settings)


def codes(folder: Path, *, fused: bool | None = None, num_frames: int = NUM_FRAMES, **settings: object) -> Int16Array:
    checkpoint = load_checkpoint(folder)
    runner = TalkerRunner(checkpoint, config(folder, **settings), fused=fused)
    return run_alone(runner, checkpoint, _utterance(folder, num_frames), num_pages=32)


def _utterance(folder: Path, num_frames: int) -> Utterance:
    checkpoint = load_checkpoint(folder)
    sampling = dataclasses.replace(checkpoint.default_sampling, do_sample=False, subtalker_do_sample=False)
    return prepare(checkpoint, TEXT, dataclasses.replace(sampling, ignore_eos=True), num_frames)


def test_the_codes_are_those_of_a_rounded_checkpoint(folders: tuple[Path, Path]) -> None:
    plain, rounded = folders
    ours = codes(plain, talker_weights="fp8")
    np.testing.assert_array_equal(ours, codes(rounded))
    np.testing.assert_array_equal(ours, codes(rounded, talker_weights="fp8"))
    assert not np.array_equal(ours, codes(plain)), "it makes a difference"


def test_all_weights_outside_the_layers_stay(folders: tuple[Path, Path]) -> None:
    before, after = (
        TalkerRunner(
            load_checkpoint(folders[0]), config(folders[0], talker_weights=weights)
        )._steps._talker.state_dict()  # type: ignore[union-attr]
        for weights in ("auto", "fp8")
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {
        name
        for name in before
        if name.startswith("model.layers.") and name.removesuffix(".weight").endswith(("qkv_proj", *ROUNDED))
    }


@pytest.mark.slow
@pytest.mark.rare
def test_the_fused_steps_say_the_same(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")
    monkeypatch.setattr("sonorant.engine.kernels.talker.attention.WARPS_WANTED", 1)  # each costs milliseconds here
    plain, rounded = folders
    ours = codes(plain, fused=True, num_frames=3, talker_weights="fp8")
    np.testing.assert_array_equal(ours, codes(rounded, fused=False, num_frames=3))


def test_real_workers_speak_with_it(folders: tuple[Path, Path]) -> None:
    async def spoken(folder: Path, weights: str) -> Int16Array:
        engine = await start_engine(config(folder, talker_weights=weights))
        try:
            heard = await say(engine, TEXT, speech(engine, max_frames=NUM_FRAMES, ignore_eos=True))
        finally:
            await engine.close()
        assert heard.num_frames == NUM_FRAMES
        return heard.samples

    async def both() -> tuple[Int16Array, Int16Array]:
        return await spoken(folders[0], "fp8"), await spoken(folders[1], "auto")

    assert_same_speech(*asyncio.run(both()))


@pytest.mark.gpu
def test_a_gpu_reads_bytes_and_says_the_same(tmp_path: Path) -> None:
    sizes = {"hidden": 256, "intermediate": 512, "head_dim": 64, "predictor_hidden": 256}
    plain, rounded = make_folders(tmp_path, torch.bfloat16, **sizes)
    on_gpu = {"device": "cuda:0", "dtype": "bfloat16"}
    ours = codes(plain, talker_weights="fp8", **on_gpu)
    np.testing.assert_array_equal(ours, codes(rounded, **on_gpu))
