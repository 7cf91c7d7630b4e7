"""Writes `speech_tokenizer/` in the published layout: the JSON files first, the weights once they are trained."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from sonorant.engine.model.codec.code2wav import Code2Wav
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.training.codec.settings import CodecSettings
from sonorant.training.codec.stage1 import QuantizedEncoder
from sonorant.training.codec.stage2_step import TrainedDecoder

HEAD_DIM = 64
FRAME_SAMPLES = 1920
SAMPLE_RATE_HZ = 24000
ENCODER_HEADS = 4
MAX_POSITIONS = 8000


def write_codec_config(folder: Path, s: CodecSettings) -> None:
    encoder = {
        "model_type": "mimi",
        "audio_channels": 1,
        "sampling_rate": SAMPLE_RATE_HZ,
        "frame_rate": SAMPLE_RATE_HZ / FRAME_SAMPLES,
        "num_filters": s.encoder_filters,
        "hidden_size": s.encoder_hidden_size,
        "intermediate_size": 2 * s.encoder_hidden_size,
        "num_hidden_layers": s.encoder_layers,
        "num_attention_heads": ENCODER_HEADS,
        "num_key_value_heads": ENCODER_HEADS,
        "head_dim": s.encoder_hidden_size // ENCODER_HEADS,
        "hidden_act": "gelu",
        "codebook_dim": s.vector_dim,
        "codebook_size": s.num_codes,
        "vector_quantization_hidden_dimension": s.vector_dim,
        "num_quantizers": s.num_codebooks,
        "num_semantic_quantizers": 1,
        "kernel_size": 7,
        "last_kernel_size": 3,
        "residual_kernel_size": 3,
        "num_residual_layers": 1,
        "dilation_growth_rate": 2,
        "compress": 2,
        "upsampling_ratios": [8, 6, 5, 4],
        "upsample_groups": s.encoder_hidden_size,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": MAX_POSITIONS,
        "sliding_window": MAX_POSITIONS,
        "norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "pad_mode": "constant",
        "trim_right_ratio": 1.0,
        "use_causal_conv": True,
        "use_conv_shortcut": False,
        "normalize": False,
        "use_cache": False,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
    }
    heads = s.decoder_hidden_size // HEAD_DIM
    decoder = {
        "latent_dim": s.latent_dim,
        "codebook_dim": s.codebook_dim,
        "codebook_size": s.num_codes,
        "vector_quantization_hidden_dimension": s.vector_dim,
        "num_quantizers": s.num_codebooks,
        "num_semantic_quantizers": 1,
        "decoder_dim": s.decoder_dim,
        "hidden_size": s.decoder_hidden_size,
        "intermediate_size": 3 * s.decoder_hidden_size,
        "num_hidden_layers": s.decoder_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000,
        "sliding_window": s.window,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "attention_bias": False,
        "attention_dropout": 0.0,
    }
    _write_json(
        folder / "config.json",
        {
            "architectures": ["Qwen3TTSTokenizerV2Model"],
            "model_type": "qwen3_tts_tokenizer_12hz",
            "encoder_valid_num_quantizers": s.num_codebooks,
            "input_sample_rate": SAMPLE_RATE_HZ,
            "output_sample_rate": SAMPLE_RATE_HZ,
            "decode_upsample_rate": FRAME_SAMPLES,
            "encode_downsample_rate": FRAME_SAMPLES,
            "dtype": "float16",
            "encoder_config": encoder,
            "decoder_config": decoder,
        },
    )
    _write_json(
        folder / "preprocessor_config.json",
        {
            "feature_extractor_type": "EncodecFeatureExtractor",
            "feature_size": 1,
            "padding_side": "right",
            "padding_value": 0.0,
            "return_attention_mask": True,
            "sampling_rate": SAMPLE_RATE_HZ,
            "chunk_length_s": None,
            "overlap": None,
        },
    )


def write_codec_weights(
    folder: Path, encoder: CodecEncoder, books: QuantizedEncoder, code2wav: Code2Wav, decoder: TrainedDecoder | None
) -> None:
    """Write model.safetensors. `encoder` is the module that `books` was trained on. The decoder's weights are those of
    `decoder`, or of `code2wav` without one (after stage 1)."""
    tensors = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    tensors |= {
        f"decoder.{name}": tensor for name, tensor in (decoder.code2wav if decoder else code2wav).state_dict().items()
    }
    outputs = (
        (decoder.first_output, decoder.rest_output) if decoder else (books.first.output_proj, books.rest.output_proj)
    )
    groups = ((books.first, "semantic", "rvq_first"), (books.rest, "acoustic", "rvq_rest"))
    for (group, encoder_name, decoder_name), output in zip(groups, outputs, strict=True):
        place = f"encoder.quantizer.{encoder_name}_residual_vector_quantizer"
        tensors[f"{place}.input_proj.weight"] = group.input_proj.weight
        for book, entries in enumerate(group.entries):
            codebook = f"{place}.layers.{book}.codebook"
            tensors |= _codebook(codebook, "embed_sum", entries) | {f"{codebook}.initialized": torch.ones(1)}
            place_of_decoder = f"decoder.quantizer.{decoder_name}.vq.layers.{book}._codebook"
            tensors |= _codebook(place_of_decoder, "embedding_sum", entries)
        tensors[f"decoder.quantizer.{decoder_name}.output_proj.weight"] = output.weight
        # The published decoder has a projection that only encoding would use: write zeros for it.
        unused = torch.zeros(group.entries.shape[2], output.out_channels, 1)
        tensors[f"decoder.quantizer.{decoder_name}.input_proj.weight"] = unused
    half = {name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "model.tmp"
    save_file(half, unfinished, metadata={"format": "pt"})
    os.replace(unfinished, folder / "model.safetensors")  # at once, as others may be reading it


def _codebook(place: str, name: str, entries: Tensor) -> dict[str, Tensor]:
    """A codebook as sums and counts, as the published codec has it; all counts are one, so half precision is enough."""
    return {f"{place}.{name}": entries.clone(), f"{place}.cluster_usage": torch.ones(len(entries))}


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
