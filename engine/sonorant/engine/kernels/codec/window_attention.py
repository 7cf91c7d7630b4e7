"""Attention over a sliding window whose keys and values are in a ring. Also rotates, and writes new keys and values.

Position p of a stream is entry p % ring of its slot's ring, which holds one position less than the window. One program
does one row and one key-value head, with all new frames: it reads the ring, then writes the new keys and values to it.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

BLOCK_RING = 16
NUM_WARPS = 2
FAR_BELOW = tl.constexpr(-1e30)  # instead of -inf, because -inf - -inf is NaN


@dataclass(frozen=True, slots=True)
class AttendedRows:
    """Where the rows of one call stand, and how their frames are rotated."""

    slots: Tensor  # [rows]
    num_frames: Tensor  # [slots], frames decoded before this call
    num_new: int
    cos: Tensor  # [rows, new, head_dim / 2], float32
    sin: Tensor  # [rows, new, head_dim / 2], float32


def rotations(slots: Tensor, num_frames: Tensor, num_new: int, frequencies: Tensor) -> AttendedRows:
    """Compute the rows' rotations of new frames, by position times frequency; frequencies [head_dim / 2] float32."""
    half = len(frequencies)
    cos = torch.empty(len(slots), num_new, half, dtype=torch.float32, device=slots.device)
    sin = torch.empty_like(cos)
    _rotations[(len(slots), num_new)](
        slots, num_frames, frequencies, cos, sin, num_new, HALF=half, BLOCK=triton.next_power_of_2(half), num_warps=1,
        **overlap(cos),
    )  # fmt: skip
    return AttendedRows(slots, num_frames, num_new, cos, sin)


def window_attention(qkv: Tensor, keys: Tensor, values: Tensor, rows: AttendedRows, num_heads: int) -> Tensor:
    """Attend from qkv [rows * new, heads * head_dim] before rotation; update keys and values
    [slots, kv_heads, ring, head_dim].

    Returns [rows * new, heads * head_dim]. Twin: `sonorant.engine.model.codec.code2wav_transformer.Attention`.
    """
    _, kv_heads, ring, dim = keys.shape
    group = num_heads // kv_heads
    out = qkv.new_empty(len(qkv), num_heads * dim)
    block_new = max(16, min(64, triton.next_power_of_2(rows.num_new)))
    _window_attention[(len(rows.slots), kv_heads)](
        qkv, rows.cos, rows.sin, rows.slots, rows.num_frames, keys, values, out,
        rows.num_new, keys.stride(0), dim**-0.5,
        HEADS=num_heads, KV_HEADS=kv_heads, DIM=dim, HALF=max(16, dim // 2), RING=ring,
        BLOCK_QUERY=max(16, min(64, triton.next_power_of_2(rows.num_new * group))),
        BLOCK_RING=BLOCK_RING, BLOCK_NEW=block_new, num_warps=NUM_WARPS,
        **overlap(out),
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["num_new"])
def _rotations(
    slots, num_frames, frequencies, cos, sin, num_new, HALF: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    row, new = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    position = tl.load(num_frames + tl.load(slots + row)) + new
    angle = position.to(tl.float32) * tl.load(frequencies + at, mask=at < HALF, other=0.0)
    to = (row * num_new + new) * HALF + at
    tl.store(cos + to, tl.cos(angle), mask=at < HALF)
    tl.store(sin + to, tl.sin(angle), mask=at < HALF)


@triton.jit
def _rotated(qkv, cos, sin, line, head, inside, SIZE: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr):
    """Load heads [n] from lines [n] of qkv, rotate and round them; return their lower and upper halves."""
    d = tl.arange(0, HALF)
    mask = inside[:, None] & (d < DIM // 2)[None, :]
    at = line[:, None] * SIZE + head[:, None] * DIM + d[None, :]
    x = tl.load(qkv + at, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(qkv + at + DIM // 2, mask=mask, other=0.0).to(tl.float32)
    c = tl.load(cos + line[:, None] * (DIM // 2) + d[None, :], mask=mask, other=0.0)
    s = tl.load(sin + line[:, None] * (DIM // 2) + d[None, :], mask=mask, other=0.0)
    return (x * c - y * s).to(qkv.dtype.element_ty), (y * c + x * s).to(qkv.dtype.element_ty)


@triton.jit
def _seen(sums, query_low, query_high, key_low, key_high, value_low, value_high, visible, scale):
    """Add one block of keys to `sums`: running maximum, sum of weights, weighted sums of both halves of the values."""
    top, total, low, high = sums
    score = tl.dot(query_low, tl.trans(key_low), input_precision="ieee")
    score = tl.dot(query_high, tl.trans(key_high), score, input_precision="ieee") * scale
    score = tl.where(visible, score, FAR_BELOW)
    new_top = tl.maximum(top, tl.max(score, 1))
    decay = tl.exp(top - new_top)
    likely = tl.exp(score - new_top[:, None])
    weight = likely.to(value_low.dtype)
    low = tl.dot(weight, value_low, low * decay[:, None], input_precision="ieee")
    high = tl.dot(weight, value_high, high * decay[:, None], input_precision="ieee")
    return new_top, total * decay + tl.sum(likely, 1), low, high


@triton.jit
def _see_ring(
    sums, query_low, query_high, new, keys, values, past, scale, entry, DIM: tl.constexpr, HALF: tl.constexpr,
    RING: tl.constexpr,
):  # fmt: skip
    """Add entries `entry` of the ring to `sums`; the queries are those of the new frames `new`."""
    d = tl.arange(0, HALF)
    age = ((past - 1 - entry) % RING + RING) % RING  # 0 is the frame before the first new one
    is_kept = (entry < RING) & (age < past)
    at = entry[:, None] * DIM + d[None, :]
    mask = is_kept[:, None] & (d < DIM // 2)[None, :]
    key_low = tl.load(keys + at, mask=mask, other=0.0)
    key_high = tl.load(keys + at + DIM // 2, mask=mask, other=0.0)
    value_low = tl.load(values + at, mask=mask, other=0.0)
    value_high = tl.load(values + at + DIM // 2, mask=mask, other=0.0)
    visible = is_kept[None, :] & (new[:, None] + age[None, :] < RING)
    return _seen(sums, query_low, query_high, key_low, key_high, value_low, value_high, visible, scale)


@triton.jit
def _new_keys(
    qkv, cos, sin, k, num_new, kv_head, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """Load keys and values of the new frames `k`, in halves; qkv, cos and sin point to the row's first frame."""
    SIZE: tl.constexpr = (HEADS + 2 * KV_HEADS) * DIM
    d = tl.arange(0, HALF)
    is_new = k < num_new
    key_low, key_high = _rotated(qkv, cos, sin, k, k * 0 + HEADS + kv_head, is_new, SIZE, DIM, HALF)
    at = k[:, None] * SIZE + (HEADS + KV_HEADS + kv_head) * DIM + d[None, :]
    mask = is_new[:, None] & (d < DIM // 2)[None, :]
    value_low = tl.load(qkv + at, mask=mask, other=0.0)
    value_high = tl.load(qkv + at + DIM // 2, mask=mask, other=0.0)
    return key_low, key_high, value_low, value_high


@triton.jit(do_not_specialize=["num_new"])
def _window_attention(
    qkv, cos, sin, slots, num_frames, keys, values, out, num_new, slot_stride, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr, RING: tl.constexpr,
    BLOCK_QUERY: tl.constexpr, BLOCK_RING: tl.constexpr, BLOCK_NEW: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    GROUP: tl.constexpr = HEADS // KV_HEADS
    SIZE: tl.constexpr = (HEADS + 2 * KV_HEADS) * DIM
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    slot = tl.load(slots + row)
    past = tl.load(num_frames + slot).to(tl.int32)
    qkv += row * num_new * SIZE
    cos += row * num_new * (DIM // 2)
    sin += row * num_new * (DIM // 2)
    out += row * num_new * HEADS * DIM
    keys += slot * slot_stride + kv_head * RING * DIM
    values += slot * slot_stride + kv_head * RING * DIM
    d = tl.arange(0, HALF)
    is_half = (d < DIM // 2)[None, :]

    for first_query in range(0, num_new * GROUP, BLOCK_QUERY):
        query = first_query + tl.arange(0, BLOCK_QUERY)
        is_query = query < num_new * GROUP
        new = query // GROUP
        head = kv_head * GROUP + query % GROUP
        query_low, query_high = _rotated(qkv, cos, sin, new, head, is_query, SIZE, DIM, HALF)
        top = tl.full([BLOCK_QUERY], FAR_BELOW, tl.float32)
        total = tl.zeros([BLOCK_QUERY], tl.float32)
        low = tl.zeros([BLOCK_QUERY, HALF], tl.float32)
        high = tl.zeros([BLOCK_QUERY, HALF], tl.float32)
        for first in range(0, RING, BLOCK_RING):
            entry = first + tl.arange(0, BLOCK_RING)
            top, total, low, high = _see_ring(
                (top, total, low, high), query_low, query_high, new, keys, values, past, scale, entry, DIM, HALF, RING
            )
        for first in range(0, num_new, BLOCK_NEW):
            k = first + tl.arange(0, BLOCK_NEW)
            key_low, key_high, value_low, value_high = _new_keys(
                qkv, cos, sin, k, num_new, kv_head, HEADS, KV_HEADS, DIM, HALF
            )
            age = new[:, None] - k[None, :]
            visible = (k < num_new)[None, :] & (age >= 0) & (age <= RING)
            top, total, low, high = _seen(
                (top, total, low, high), query_low, query_high, key_low, key_high, value_low, value_high, visible, scale
            )
        at = (new * HEADS + head)[:, None] * DIM + d[None, :]
        mask = is_query[:, None] & is_half
        tl.store(out + at, (low / total[:, None]).to(out.dtype.element_ty), mask=mask)
        tl.store(out + at + DIM // 2, (high / total[:, None]).to(out.dtype.element_ty), mask=mask)

    tl.debug_barrier()  # every thread has read the ring
    for first in range(0, num_new, BLOCK_NEW):
        k = first + tl.arange(0, BLOCK_NEW)
        key_low, key_high, value_low, value_high = _new_keys(
            qkv, cos, sin, k, num_new, kv_head, HEADS, KV_HEADS, DIM, HALF
        )
        to = ((past + k) % RING)[:, None] * DIM + d[None, :]
        mask = ((k < num_new) & (k >= num_new - RING))[:, None] & is_half
        tl.store(keys + to, key_low, mask=mask)
        tl.store(keys + to + DIM // 2, key_high, mask=mask)
        tl.store(values + to, value_low, mask=mask)
        tl.store(values + to + DIM // 2, value_high, mask=mask)
