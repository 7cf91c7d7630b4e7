"""The codec's encoder by compiled functions makes the codes that plain operations make, with any number of threads."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.encoder import CompiledCodecEncoder, fits
from sonorant.engine.cpu.library import builds, chosen, library, load
from sonorant.engine.encoder.reference import ReferenceEncoder
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.engine.model.weights import init_random
from tests.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.skipif(library() is None, reason="installed without a C compiler")

SMALL = {
    "num_filters": 10,  # none of these channels fill groups
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "codebook_size": 128,
    "codebook_dim": 32,
    "vector_quantization_hidden_dimension": 32,
    "num_quantizers": 8,
    "num_semantic_quantizers": 2,
    "attention_bias": True,
}
NUM_CODEBOOKS = 6
SAMPLES = 24_000 + 700  # neither whole frames nor whole vectors; ten chunks of the first stage


def encoder_of(**changes: object) -> CodecEncoder:
    """An encoder with random weights of which none is left out of the result."""
    codec = load_checkpoint(PRESETS_DIR / "qwen3-tts-12hz-0.6b-base").codec
    settings = {**codec.encoder, **SMALL, **changes}
    with torch.device("meta"):
        encoder = CodecEncoder(dataclasses.replace(codec, encoder=settings, encoder_valid_num_quantizers=NUM_CODEBOOKS))
    init_random(encoder, torch.device("cpu"), torch.float32, seed=1)
    with torch.no_grad():
        for number, (name, tensor) in enumerate(encoder.state_dict().items()):
            chance = torch.Generator().manual_seed(number)
            if "scale" in name or "usage" in name:
                tensor.uniform_(0.5, 1.5, generator=chance)
            elif tensor.dim() > 1:
                tensor.normal_(std=1.0 if "embed_sum" in name else 1 / tensor[0].numel() ** 0.5, generator=chance)
            elif name.endswith("bias"):
                tensor.normal_(std=0.1, generator=chance)
    return encoder


@pytest.fixture(scope="module")
def encoder() -> CodecEncoder:
    made = encoder_of()
    assert fits(made)
    return made


def noise(num_samples: int) -> Tensor:
    return torch.randn(num_samples, generator=torch.Generator().manual_seed(num_samples))


@torch.inference_mode()
def test_every_build_makes_the_codes_of_plain_operations(encoder: CodecEncoder) -> None:
    expected = encoder(noise(SAMPLES))
    assert min(len(expected[:, book].unique()) for book in range(NUM_CODEBOOKS)) > 3
    for build, path in builds().items():
        codes = CompiledCodecEncoder(load(path), encoder)(noise(SAMPLES))
        np.testing.assert_array_equal(codes, expected, err_msg=build)


@pytest.mark.parametrize("num_samples", [1, 959, 961, 1920, 1921, 3841])
@torch.inference_mode()
def test_the_ends_of_a_recording_are_those_of_plain_operations(encoder: CodecEncoder, num_samples: int) -> None:
    compiled = CompiledCodecEncoder(library(), encoder)
    np.testing.assert_array_equal(compiled(noise(num_samples)), encoder(noise(num_samples)))


@torch.inference_mode()
def test_threads_change_no_code(encoder: CodecEncoder, tmp_path: Path) -> None:
    """A copy of the library has its own threads, which end with the process as those of the library do."""
    copy = load(Path(shutil.copy(chosen() or "", tmp_path)))
    assert copy.use_threads(3) == 3
    one, three = (CompiledCodecEncoder(each, encoder)(noise(3 * SAMPLES)) for each in (library(), copy))
    np.testing.assert_array_equal(three, one)


@pytest.mark.parametrize(
    "changes",
    [
        {"codebook_dim": 24, "vector_quantization_hidden_dimension": 24},
        {"num_residual_layers": 2},
        {"use_conv_shortcut": True},
        {"kernel_size": 5},
        {"upsampling_ratios": [5, 4, 4], "frame_rate": 75, "_frame_rate": None},
    ],
)
def test_other_networks_stay_with_plain_operations(changes: dict[str, object]) -> None:
    changed = {key: value for key, value in changes.items() if value is not None}
    assert not fits(encoder_of(**changed))


def test_recordings_are_encoded_by_it(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path, "base")
    encoder = ReferenceEncoder(load_checkpoint(folder), EngineConfig(model=folder))
    assert encoder.is_compiled
    samples = noise(SAMPLES).numpy()
    x_vector, codes = encoder.encode(samples, with_codes=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sonorant.engine.encoder.reference.library", lambda: None)
        plain = ReferenceEncoder(load_checkpoint(folder), EngineConfig(model=folder))
        assert not plain.is_compiled
        np.testing.assert_array_equal(codes, plain.codes(samples))
        np.testing.assert_allclose(x_vector, plain.x_vector(samples), rtol=0, atol=1e-5)
