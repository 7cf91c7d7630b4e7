"""The speaker encoder by compiled functions makes what plain operations make, with any number of threads."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import SpeakerEncoderConfig, load_checkpoint
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.cpu.library import builds, chosen, library, load
from sonorant.engine.cpu.speaker import CompiledSpeakerEncoder, fits
from sonorant.engine.model.speaker_encoder import SpeakerEncoder
from sonorant.engine.model.weights import init_random

pytestmark = pytest.mark.skipif(library() is None, reason="installed without a C compiler")

# Neither parts of ten channels nor those of the attention fill groups.
SMALL = {"enc_dim": 48, "mel_dim": 32, "channels": (80, 80, 80, 80, 240), "res2net_scale": 8, "attention_channels": 24}
FRAMES = 150


def config_of(**changes: object) -> SpeakerEncoderConfig:
    published = load_checkpoint(PRESETS_DIR / "qwen3-tts-12hz-0.6b-base").speaker_encoder
    assert published is not None
    return dataclasses.replace(published, **SMALL | {"se_channels": 20} | changes)


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    """An encoder in whose random weights every layer changes the result."""
    with torch.device("meta"):
        made = SpeakerEncoder(config_of())
    init_random(made, torch.device("cpu"), torch.float32, seed=1)
    with torch.no_grad():
        for number, tensor in enumerate(made.parameters()):
            scale = 0.3 if tensor.dim() == 1 else 1 / (tensor.shape[1] * tensor.shape[2]) ** 0.5
            tensor.normal_(std=scale, generator=torch.Generator().manual_seed(number))
    return made


def mel(frames: int) -> Tensor:
    return 2 * torch.randn(frames, 32, generator=torch.Generator().manual_seed(frames)) - 3


@pytest.mark.parametrize("frames", [FRAMES, 5])
@torch.inference_mode()
def test_every_build_makes_what_plain_operations_make(encoder: SpeakerEncoder, frames: int) -> None:
    """Also of the shortest recording, which is reflected at both of its ends."""
    assert encoder.min_frames == 5
    expected = encoder(mel(frames)[None])[0]
    assert expected.std() > 0.1
    for build, path in builds().items():
        x_vector = CompiledSpeakerEncoder(load(path), encoder)(mel(frames))
        np.testing.assert_allclose(x_vector, expected, rtol=0, atol=1e-5 * float(expected.abs().max()), err_msg=build)


@torch.inference_mode()
def test_threads_change_no_bit(encoder: SpeakerEncoder, tmp_path: Path) -> None:
    """A copy of the library has its own threads, which end with the process as those of the library do."""
    copy = load(Path(shutil.copy(chosen() or "", tmp_path)))
    assert copy.use_threads(3) == 3
    one, three = (CompiledSpeakerEncoder(each, encoder)(mel(FRAMES)) for each in (library(), copy))
    np.testing.assert_array_equal(three, one)


@pytest.mark.parametrize(
    "changes", [{"mel_dim": 40}, {"channels": (80, 80, 80, 96, 256)}, {"kernel_sizes": (5, 3, 3, 3, 3)}]
)
def test_other_networks_stay_with_plain_operations(changes: dict[str, object]) -> None:
    assert fits(config_of())
    assert not fits(config_of(**changes))
