"""The codec encoder against Mimi as transformers has it: the same names and numbers, also beyond published sizes."""

import dataclasses
from typing import Any

import pytest
import torch

from sonorant.engine.checkpoint.config import CodecConfig, load_checkpoint
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.engine.model.codec.codec_encoder_config import SUPPORTED, CodecEncoderConfig, codec_encoder_config
from sonorant.engine.model.weights import init_random

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
NO_WINDOW = 1 << 30  # transformers 4.57.3 attends to all the past, whatever the config declares; later versions do not
SMALL = {
    "num_filters": 4,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "codebook_size": 64,
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
    "num_quantizers": 6,
}


class Reference(torch.nn.Module):
    def __init__(self, said: dict[str, Any], num_codebooks: int) -> None:
        from transformers.models.mimi import modeling_mimi as of  # seconds, which no other test process spends

        super().__init__()
        mimi = of.MimiConfig(**{**said, "sliding_window": NO_WINDOW}, attn_implementation="sdpa")
        self.encoder = of.MimiEncoder(mimi)
        self.encoder_transformer = of.MimiTransformerModel(mimi)
        hidden, stride = mimi.hidden_size, int(mimi.encodec_frame_rate / mimi.frame_rate)
        self.downsample = of.MimiConv1d(mimi, hidden, hidden, 2 * stride, stride, bias=False, pad_mode="replicate")
        self.quantizer = of.MimiSplitResidualVectorQuantizer(mimi)
        self.num_codebooks = num_codebooks

    def embed(self, samples: torch.Tensor) -> torch.Tensor:
        x = self.encoder(samples[:, None])
        return self.downsample(self.encoder_transformer(x.transpose(1, 2))[0].transpose(1, 2))

    def encode(self, samples: torch.Tensor) -> torch.Tensor:
        return self.quantizer.encode(self.embed(samples), self.num_codebooks).permute(1, 2, 0)


def saying(**said: Any) -> CodecConfig:
    """The published codec with these settings of the encoder, but for those that are None: it does not say them."""
    codec = load_checkpoint(PRESETS_DIR / "qwen3-tts-12hz-0.6b-base").codec
    settings = {key: value for key, value in {**codec.encoder, **said}.items() if value is not None}
    return dataclasses.replace(codec, encoder=settings, encoder_valid_num_quantizers=4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_conv_shortcut": True, "num_residual_layers": 2},
        {"num_key_value_heads": 1, "attention_bias": True, "head_dim": None},
        {"upsampling_ratios": [5, 4, 4], "frame_rate": 75, "_frame_rate": None},
        {"num_semantic_quantizers": 3, "_frame_rate": None, "rope_theta": 100.0, "norm_eps": 0.1},
    ],
)
@torch.no_grad()
def test_the_same_numbers(changes: dict[str, Any]) -> None:
    config = saying(**SMALL | changes)
    encoder = CodecEncoder(config)
    init_random(encoder, CPU, torch.float32, seed=1)
    for name, tensor in encoder.state_dict().items():
        if "embed_sum" in name:
            tensor.normal_()
        elif "scale" in name or "usage" in name:
            tensor.uniform_(0.5, 1.5)
    reference = Reference(dict(config.encoder), num_codebooks=4).eval()
    reference.load_state_dict(encoder.state_dict())
    samples = 0.1 * torch.randn(2, 20_011, generator=torch.Generator().manual_seed(0))
    vectors = encoder.encoder_transformer(encoder.encoder(samples[:, None])[0].transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(encoder.downsample(vectors), reference.embed(samples), rtol=0, atol=1e-5)
    codes = encoder.encode(samples)
    assert len(codes.unique()) > 20
    assert torch.equal(codes, reference.encode(samples))


def test_what_the_config_does_not_say() -> None:
    config = saying(**dict.fromkeys(load_checkpoint(PRESETS_DIR / "qwen3-tts-12hz-0.6b-base").codec.encoder))
    assert not config.encoder
    with torch.device("meta"):
        found = CodecEncoder(config).state_dict()
    expected = Reference({}, 4).state_dict()
    assert {name: tensor.shape for name, tensor in found.items()} == {n: t.shape for n, t in expected.items()}
    from transformers import MimiConfig

    defaults = MimiConfig()
    made = codec_encoder_config(config)
    declared = [each for each in dataclasses.fields(CodecEncoderConfig) if each.metadata]
    said = {each.metadata["name"] or each.name: getattr(made, each.name) for each in declared}
    said |= SUPPORTED | {"upsampling_ratios": list(reversed(made.strides)), "norm_eps": made.stack.rms_norm_eps}
    said |= {"num_hidden_layers": made.stack.num_layers, "num_attention_heads": made.stack.num_heads}
    said |= {"num_key_value_heads": made.stack.num_kv_heads, "num_quantizers": made.num_semantic + made.num_acoustic}
    for name in ("hidden_size", "intermediate_size", "head_dim", "attention_bias"):
        said[name] = getattr(made.stack, name)
    assert said == {name: getattr(defaults, name) for name in said}
