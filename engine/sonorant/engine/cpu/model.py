"""Arranges the talker's weights as the functions of frame.c need them."""

from typing import Any

import torch
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import Checkpoint, TransformerConfig
from sonorant.engine.cpu.library import LANES, NULL, Kept, structure
from sonorant.engine.model.layers import DecoderLayer, JoinedAttention, RMSNorm, RotaryTable
from sonorant.engine.model.rounded import RoundedLinear
from sonorant.engine.model.talker import Talker
from sonorant.engine.sizes import MOST_WEIGHTS, frame_weights

FORMATS = {"bfloat16": 0, "float32": 1, "int8": 2, "int4": 3}  # as in products.h, like the next two
WIDTH = 4
SIDE = 16


def can_run(checkpoint: Checkpoint) -> bool:
    """Whether frame.c can run a model of these sizes."""
    c, p = checkpoint.talker, checkpoint.code_predictor
    stacks = (c.stack, p.stack)
    even = all(
        not size % LANES
        for stack in stacks
        for size in (stack.hidden_size, stack.intermediate_size, stack.head_dim, c.vocab_size, p.vocab_size)
    )
    return even and not any(stack.attention_bias for stack in stacks)


def fits(checkpoint: Checkpoint, dtype: torch.dtype) -> bool:
    """Whether frame.c can run this model with its weights as they are, and faster than torch."""
    return dtype == torch.float32 and can_run(checkpoint) and frame_weights(checkpoint) <= MOST_WEIGHTS


def stack_of(
    layers: nn.ModuleList, norm: RMSNorm, c: TransformerConfig, rotary: RotaryTable, kept: Kept, *, weights: str
) -> Any:
    blocks, attentions = [], []
    for layer in layers:
        assert isinstance(layer, DecoderLayer) and isinstance(layer.self_attn, JoinedAttention), "not prepared"
        blocks.append(layer)
        attentions.append(layer.self_attn)
    mlps = [each.mlp for each in blocks]

    def matrices(each: list[Tensor]) -> Any:
        return kept.tensors([packed(weight, weights) for weight in each])

    return structure(
        "Stack",
        hidden=c.hidden_size,
        intermediate=c.intermediate_size,
        heads=c.num_heads,
        kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        layers=c.num_layers,
        format=FORMATS[weights],
        eps=c.rms_norm_eps,
        qkv=matrices([each.qkv_proj.weight for each in attentions]),
        out=matrices([each.o_proj.weight for each in attentions]),
        gate=matrices([each.gate_proj.weight for each in mlps]),
        up=matrices([each.up_proj.weight for each in mlps]),
        down=matrices([each.down_proj.weight for each in mlps]),
        input_norm=kept.tensors([each.input_layernorm.weight for each in blocks]),
        qk_norm=kept.tensors([each.qk_norm.weight.contiguous() for each in attentions]),
        mlp_norm=kept.tensors([each.post_attention_layernorm.weight for each in blocks]),
        norm=kept.tensor(norm.weight),
        cos=kept.tensor(rotary.cos),
        sin=kept.tensor(rotary.sin),
    )


def frames_of(talker: Talker, checkpoint: Checkpoint, predictor: Any, kept: Kept, *, weights: str) -> Any:
    """Make the structure, except for the fields that are kept by slot, which the caller sets. `predictor`: from
    `stack_of`."""
    num_codebooks = checkpoint.talker.num_codebooks
    heads, tables = talker.code_predictor.lm_head, talker.code_predictor.model.codec_embedding
    embeddings = [_weight(each) for each in (talker.model.codec_embedding, *tables)][:num_codebooks]
    shrink = talker.code_predictor.small_to_mtp_projection
    has_shrink = not isinstance(shrink, nn.Identity)
    return structure(
        "Frames",
        predictor=predictor,
        hidden=checkpoint.talker.stack.hidden_size,
        num_codebooks=num_codebooks,
        vocab=checkpoint.talker.vocab_size,
        predictor_vocab=checkpoint.code_predictor.vocab_size,
        eos=checkpoint.talker.codec_eos_id,
        tables_format=FORMATS[str(embeddings[0].dtype).removeprefix("torch.")],
        head=kept.tensor(packed(talker.codec_head.weight, weights)),
        predictor_heads=kept.tensors([packed(_weight(head), weights) for head in heads]),
        shrink=kept.tensor(packed(_weight(shrink), weights)) if has_shrink else NULL,
        shrink_bias=kept.tensor(shrink.bias) if has_shrink and isinstance(shrink.bias, Tensor) else NULL,
        tables=kept.tensors(embeddings),
    )


def _weight(module: nn.Module) -> Tensor:
    assert isinstance(module.weight, Tensor)
    return module.weight


def packed(weight: Tensor, weights: str) -> Tensor:
    """Return a product's weights in the order of products.h; rounded ones are in it already."""
    if weight.dtype == torch.int8:
        return weight.contiguous()
    if weights == "float32":
        return weight.float().contiguous()
    pairs = weight.bfloat16().reshape(-1, WIDTH, weight.shape[1] // (2 * SIDE), 2, SIDE)
    return pairs.permute(0, 2, 1, 4, 3).contiguous()


def format_of(talker: Talker) -> str:
    """Return the name of the format to multiply in: for weights that are not rounded bfloat16, which halves what is
    read, if it holds all values of the matrices, as it does those of published checkpoints, and their rows are whole
    pairs of SIDE inputs."""
    for each in talker.modules():
        if isinstance(each, RoundedLinear):
            return each.rounding.name
    matrices = [_weight(each) for each in talker.modules() if isinstance(each, nn.Linear)]
    is_narrow = all(not w.shape[1] % (2 * SIDE) and w.bfloat16().float().equal(w) for w in matrices)
    return "bfloat16" if is_narrow else "float32"
