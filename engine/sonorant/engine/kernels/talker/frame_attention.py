"""Attention of the code predictor. Keys and values are kept for one frame: at most one position per codebook.

One warp or program does one stream and one key-value head with all its query heads, norm and rotation included. All
addresses that it reads from can be computed without a look-up, so that all reads can start at once. The checkpoints'
shape has a kernel in CUDA C++ (frame_attention.cu), as one warp needs half the time there; any other has one in Triton.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.cuda_code import CudaKernel, load, offers
from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait
from sonorant.engine.kernels.talker.attention import FAR_BELOW, HeadNorm, _norm_and_rotate

WARPS = 4
MAX_POSITIONS = 16


def frame_attention(qkv: Tensor, norm: HeadNorm, keys: Tensor, values: Tensor, *, position: int) -> Tensor:
    """qkv [streams, heads * head_dim] at `position` 2 or higher of each stream, or at position 1
    [streams * 2, heads * head_dim], with the rows of positions 0 and 1 of each stream side by side.

    keys and values [streams, positions, kv_heads, head_dim], written to. Returns [rows of qkv, heads * head_dim].
    Twin: `sonorant.engine.model.layers.JoinedAttention` with `sonorant.engine.model.attention.frame_attention`.
    """
    num_streams, num_positions, kv_heads, dim = keys.shape
    heads = len(norm.weight) - kv_heads
    out = qkv.new_empty(len(qkv), heads * dim)
    is_known = dim == 128 and heads == 2 * kv_heads and kv_heads % WARPS == 0 and num_positions <= MAX_POSITIONS
    if is_known and qkv.dtype in (torch.bfloat16, torch.float16) and offers(qkv):
        kernel = _kernel(num_streams, kv_heads, num_positions, position == 1, qkv.dtype == torch.float16, qkv.device)
        kernel.launch(qkv, norm.weight, norm.cos, norm.sin, keys, values, out, position, norm.eps, dim**-0.5)
        return out
    _frame[(num_streams, kv_heads)](
        qkv,
        norm.weight,
        norm.cos,
        norm.sin,
        keys,
        values,
        out,
        position,
        norm.eps,
        dim**-0.5,
        HEADS=heads,
        KV_HEADS=kv_heads,
        DIM=dim,
        POSITIONS=num_positions,
        BLOCK=triton.next_power_of_2(num_positions),
        GROUP=triton.next_power_of_2(heads // kv_heads),
        IS_FIRST=position == 1,
        num_warps=2,
        **overlap(qkv),
    )
    return out


@cache
def _kernel(
    num_streams: int, kv_heads: int, num_positions: int, is_first: bool, is_float16: bool, device: torch.device
) -> CudaKernel:
    macros = macros_of(kv_heads, num_positions, is_first, is_float16)
    return load("talker/frame_attention.cu", macros, device, blocks=num_streams * kv_heads // WARPS, threads=WARPS * 32)


def macros_of(kv_heads: int, num_positions: int, is_first: bool, is_float16: bool) -> dict[str, int]:
    return {
        "KV_HEADS": kv_heads,
        "POSITIONS": num_positions,
        "IS_FIRST": int(is_first),
        "FLOAT16": int(is_float16),
    }


@triton.jit(do_not_specialize=["position"])
def _frame(
    qkv, weight, cos, sin, keys, values, out, position, eps, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, IS_FIRST: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    QUERIES: tl.constexpr = HEADS // KV_HEADS
    PADDED_DIM: tl.constexpr = DIM if DIM >= 16 else 16
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * DIM
    stream = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    d = tl.arange(0, PADDED_DIM)
    is_dim = d < DIM
    group = tl.arange(0, GROUP)
    heads = kv_head * QUERIES + tl.minimum(group, QUERIES - 1)
    key_head = HEADS + kv_head + tl.arange(0, 1)
    value_at = (HEADS + KV_HEADS + kv_head) * DIM + d
    row = stream * 2 + 1 if IS_FIRST else stream
    new = qkv + row * WIDTH

    at = tl.arange(0, BLOCK)
    kept = ((stream * POSITIONS + at) * KV_HEADS + kv_head)[:, None] * DIM + d[None, :]
    own = ((stream * POSITIONS + position) * KV_HEADS + kv_head) * DIM
    own_key = _norm_and_rotate(new, weight, cos, sin, key_head, position, eps, DIM)  # [1, PADDED_DIM]
    own_value = tl.load(new + value_at, mask=is_dim, other=0.0)
    query = _norm_and_rotate(new, weight, cos, sin, heads, position, eps, DIM).to(tl.float32)  # [GROUP, PADDED_DIM]
    place = heads[:, None] * DIM + d[None, :]
    is_place = (group < QUERIES)[:, None] & is_dim[None, :]
    if IS_FIRST:
        before = new - WIDTH
        key = _norm_and_rotate(before, weight, cos, sin, key_head, 0, eps, DIM)
        value = tl.load(before + value_at, mask=is_dim, other=0.0)
        tl.store(keys + own - KV_HEADS * DIM + d[None, :], key, mask=is_dim[None, :])
        tl.store(values + own - KV_HEADS * DIM + d, value, mask=is_dim)
        # Position 0 sees itself alone.
        alone = tl.zeros([GROUP, PADDED_DIM], tl.float32) + value.to(tl.float32)[None, :]
        tl.store(out + (row - 1) * HEADS * DIM + place, alone.to(out.dtype.element_ty), mask=is_place)
        is_seen = at == 0
        key = tl.where(is_seen[:, None], key.to(tl.float32), 0.0)
        value = tl.where(is_seen[:, None], value.to(tl.float32)[None, :], 0.0)
    else:
        is_seen = at < position
        inside = is_seen[:, None] & is_dim[None, :]
        key = tl.load(keys + kept, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(values + kept, mask=inside, other=0.0).to(tl.float32)
    tl.store(keys + own + d[None, :], own_key, mask=is_dim[None, :])
    tl.store(values + own + d, own_value, mask=is_dim)

    score = tl.sum(query[:, None, :] * key[None, :, :], 2) * scale  # [GROUP, BLOCK]
    score = tl.where(is_seen[None, :], score, FAR_BELOW)
    own_score = tl.sum(query * own_key.to(tl.float32), 1) * scale
    top = tl.maximum(tl.max(score, 1), own_score)
    likely = tl.exp(score - top[:, None])
    own_likely = tl.exp(own_score - top)
    total = tl.sum(likely, 1) + own_likely
    result = tl.sum(likely[:, :, None] * value[None, :, :], 1)
    result += own_likely[:, None] * own_value.to(tl.float32)[None, :]
    attended = (result / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + row * HEADS * DIM + place, attended, mask=is_place)
