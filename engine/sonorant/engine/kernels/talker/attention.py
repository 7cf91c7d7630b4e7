"""Attention of single positions over paged keys and values. Also norms queries and keys, rotates them, and writes the
new keys and values.

One program does one row, one key-value head with all its query heads, and one share of the positions (a "split"; there
are several, so that few rows fill the GPU as well). Products use `tl.dot`, which needs 16 rows and columns. Padding to
these costs nothing, as the time is spent on reading keys and values.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

WARPS_WANTED = 1024
MAX_SPLITS = 16
FAR_BELOW = tl.constexpr(-1e30)  # instead of -inf, because -inf - -inf is NaN


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """RMSNorm of each head of queries and keys, and the rotation after it."""

    weight: Tensor  # [heads + kv_heads, head_dim]
    eps: float
    cos: Tensor  # [positions, head_dim], float32
    sin: Tensor  # [positions, head_dim], float32, the first half negated


@dataclass(frozen=True, slots=True)
class RowPositions:
    """Slots and positions of the rows. Position p of a slot is at p % page_size in page table[slot, p // page_size]."""

    slots: Tensor  # [rows]
    positions: Tensor  # [rows]
    table: Tensor  # [slots, pages]
    page_size: int
    # Whether no two rows have the same slot. If so, each program writes the one new key that it needs; otherwise a
    # separate launch writes all new keys first.
    are_single: bool


@dataclass(frozen=True, slots=True)
class WatchedLogits:
    """The attention logits (before softmax) of one head for some positions of each row; positions that a row does not
    see are not written."""

    head: int
    first: Tensor  # [rows], the first of these positions; negative: do not watch the row
    logits: Tensor  # [rows or more, positions], float32, written to; may be in pinned memory of the host


def paged_attention(
    qkv: Tensor,
    norm: HeadNorm,
    keys: Tensor,
    values: Tensor,
    *,
    places: RowPositions,
    watch: WatchedLogits | None = None,
) -> Tensor:
    """Attend from qkv [rows, heads * head_dim] before norm and rotation; write to keys and values
    [places, kv_heads, head_dim].

    Each row sees its slot up to its own position. Returns [rows, heads * head_dim].
    Twin: `sonorant.engine.model.layers.JoinedAttention` with `sonorant.engine.model.attention.paged_attention`.
    """
    rows, (_, kv_heads, dim) = qkv.shape[0], keys.shape
    heads = len(norm.weight) - kv_heads
    shape = {"HEADS": heads, "KV_HEADS": kv_heads, "DIM": dim, "PAGE": places.page_size}
    table_width = places.table.shape[1]
    given = (qkv, norm.weight, norm.cos, norm.sin, places.slots, places.positions, places.table, keys, values)
    if not places.are_single:
        _store[(rows, kv_heads)](*given, table_width, norm.eps, **shape, num_warps=1, **overlap(qkv))
    is_long = table_width * places.page_size > 16
    block, num_warps, num_stages = _tile(is_long, rows * kv_heads)
    wanted = WARPS_WANTED // num_warps // (rows * kv_heads)
    splits = min(MAX_SPLITS, triton.next_power_of_2(max(1, wanted))) if is_long else 1
    out = qkv.new_empty(rows, heads * dim)
    # Each split has a slice of `partial`: its weighted sum, its maximum, its sum of weights.
    partial = qkv.new_empty((rows, heads, splits, dim + 2), dtype=torch.float32) if splits > 1 else out
    _attend[(rows, kv_heads, splits)](
        *given,
        out,
        partial,
        places.positions if watch is None else watch.first,
        out if watch is None else watch.logits,
        table_width,
        norm.eps,
        dim**-0.5,
        **shape,
        BLOCK=block,
        SPLITS=splits,
        OWN_KEY=places.are_single,
        WATCHED_HEAD=-1 if watch is None else watch.head,
        WATCHED=0 if watch is None else watch.logits.shape[1],
        num_warps=num_warps,
        num_stages=num_stages,
        **overlap(qkv),
    )
    if splits > 1:
        _join_splits[(rows, heads)](partial, out, HEADS=heads, DIM=dim, SPLITS=splits, num_warps=1, **overlap(out))
    return out


def _tile(is_long: bool, num_programs: int) -> tuple[int, int, int]:
    """Positions at a time, warps, pipeline stages: the fastest measured on an NVIDIA H200 at positions of about 200."""
    if not is_long:
        return 16, 4, 3
    return (32, 1, 2) if num_programs >= 128 else (64, 8, 3)


@triton.jit
def _norm_and_rotate(qkv, weight, cos, sin, heads, position, eps, DIM: tl.constexpr):
    """Load heads [n] of one row of qkv, norm and rotate them: [n, DIM padded to 16], in the dtype of qkv."""
    d = tl.arange(0, DIM if DIM >= 16 else 16)
    is_inside = (d < DIM)[None, :]
    at = heads[:, None] * DIM + d[None, :]
    partner = heads[:, None] * DIM + ((d + DIM // 2) % DIM)[None, :]
    dtype = qkv.dtype.element_ty
    x = tl.load(qkv + at, mask=is_inside, other=0.0).to(tl.float32)
    y = tl.load(qkv + partner, mask=is_inside, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(x * x, 1) / DIM + eps)[:, None]
    x_weight = tl.load(weight + at, mask=is_inside, other=0.0).to(tl.float32)
    y_weight = tl.load(weight + partner, mask=is_inside, other=0.0).to(tl.float32)
    # Round after each product, as the plain norm does; the rotation is float32 throughout.
    x = (x_weight * (x * factor).to(dtype).to(tl.float32)).to(dtype).to(tl.float32)
    y = (y_weight * (y * factor).to(dtype).to(tl.float32)).to(dtype).to(tl.float32)
    c = tl.load(cos + position * DIM + d, mask=d < DIM, other=0.0)[None, :]
    s = tl.load(sin + position * DIM + d, mask=d < DIM, other=0.0)[None, :]
    return (x * c + y * s).to(dtype)


@triton.jit
def _place(table, slot, position, table_width, PAGE: tl.constexpr):
    page = tl.load(table + slot * table_width + position // PAGE)
    return page.to(tl.int64) * PAGE + position % PAGE


@triton.jit
def _store(
    qkv, weight, cos, sin, slots, positions, table, keys, values, table_width, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    d = tl.arange(0, DIM if DIM >= 16 else 16)
    position = tl.load(positions + row)
    new = qkv + row * (HEADS + 2 * KV_HEADS) * DIM
    key = _norm_and_rotate(new, weight, cos, sin, HEADS + kv_head + tl.arange(0, 1), position, eps, DIM)
    value = tl.load(new + (HEADS + KV_HEADS + kv_head) * DIM + d, mask=d < DIM, other=0.0)
    own = (_place(table, tl.load(slots + row), position, table_width, PAGE) * KV_HEADS + kv_head) * DIM
    tl.store(keys + own + d[None, :], key, mask=(d < DIM)[None, :])
    tl.store(values + own + d, value, mask=d < DIM)


@triton.jit
def _attend(
    qkv, weight, cos, sin, slots, positions, table, keys, values, out, partial, watched, logits, table_width, eps,
    scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr, SPLITS: tl.constexpr, OWN_KEY: tl.constexpr, WATCHED_HEAD: tl.constexpr, WATCHED: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    GROUP: tl.constexpr = HEADS // KV_HEADS
    PADDED_DIM: tl.constexpr = DIM if DIM >= 16 else 16
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    d = tl.arange(0, PADDED_DIM)
    heads = kv_head * GROUP + tl.minimum(tl.arange(0, 16), GROUP - 1)
    is_head = tl.arange(0, 16)[:, None] < GROUP
    slot = tl.load(slots + row)
    position = tl.load(positions + row)
    new = qkv + row * (HEADS + 2 * KV_HEADS) * DIM
    query = _norm_and_rotate(new, weight, cos, sin, heads, position, eps, DIM)  # [16, PADDED_DIM]

    if WATCHED_HEAD >= 0:
        first_watched = tl.load(watched + row)
        is_wanted = (first_watched >= 0) & (kv_head == WATCHED_HEAD // GROUP)
        num_watched = tl.where(is_wanted, WATCHED, 0)

    kept = position if OWN_KEY else position + 1  # positions to be read from the pool
    share = tl.cdiv(tl.cdiv(kept, BLOCK), SPLITS) * BLOCK
    start = split * share
    stop = tl.minimum(start + share, kept)
    top = tl.full([16], FAR_BELOW, tl.float32)
    total = tl.zeros([16], tl.float32)
    result = tl.zeros([16, PADDED_DIM], tl.float32)
    for first in range(start, stop, BLOCK):
        at = first + tl.arange(0, BLOCK)
        is_seen = at < stop
        page = tl.load(table + slot * table_width + at // PAGE, mask=is_seen, other=0)
        place = page.to(tl.int64) * PAGE + at % PAGE
        offsets = ((place * KV_HEADS + kv_head) * DIM)[:, None] + d[None, :]
        is_inside = is_seen[:, None] & (d < DIM)[None, :]
        key = tl.load(keys + offsets, mask=is_inside, other=0.0)
        value = tl.load(values + offsets, mask=is_inside, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        if WATCHED_HEAD >= 0:
            of_head = tl.sum(tl.where(tl.arange(0, 16)[:, None] == WATCHED_HEAD % GROUP, score, 0.0), 0)
            place = at - first_watched
            is_watched = (place >= 0) & (place < num_watched)
            tl.store(logits + row * WATCHED + place, of_head, mask=is_seen & is_watched)
        score = tl.where(is_seen[None, :], score, FAR_BELOW)
        new_top = tl.maximum(top, tl.max(score, 1))
        decay = tl.exp(top - new_top)
        likely = tl.exp(score - new_top[:, None])
        total = total * decay + tl.sum(likely, 1)
        result = result * decay[:, None] + tl.dot(likely.to(value.dtype), value, input_precision="ieee")
        top = new_top

    if OWN_KEY:  # noqa: SIM102 (this is decided at compile time, the next at run time)
        if split == 0:
            own_key = _norm_and_rotate(new, weight, cos, sin, HEADS + kv_head + tl.arange(0, 1), position, eps, DIM)
            own_value = tl.load(new + (HEADS + KV_HEADS + kv_head) * DIM + d, mask=d < DIM, other=0.0)
            own = (_place(table, slot, position, table_width, PAGE) * KV_HEADS + kv_head) * DIM
            tl.store(keys + own + d[None, :], own_key, mask=(d < DIM)[None, :])
            tl.store(values + own + d, own_value, mask=d < DIM)
            score = tl.sum(query.to(tl.float32) * own_key.to(tl.float32), 1) * scale
            if WATCHED_HEAD >= 0:
                of_head = tl.where(tl.arange(0, 16) == WATCHED_HEAD % GROUP, score, 0.0)
                place = position - first_watched + tl.arange(0, 1)
                is_watched = (place >= 0) & (place < num_watched)
                tl.store(logits + row * WATCHED + place, tl.sum(of_head, 0), mask=is_watched)
            new_top = tl.maximum(top, score)
            decay = tl.exp(top - new_top)
            likely = tl.exp(score - new_top)
            total = total * decay + likely
            result = result * decay[:, None] + likely[:, None] * own_value.to(tl.float32)[None, :]
            top = new_top
    if SPLITS == 1:
        at = row * HEADS * DIM + heads[:, None] * DIM + d[None, :]
        attended = (result / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + at, attended, mask=is_head & (d < DIM)[None, :])
    else:
        piece = partial + ((row * HEADS + heads) * SPLITS + split) * (DIM + 2)
        tl.store(piece[:, None] + d[None, :], result, mask=is_head & (d < DIM)[None, :])
        tl.store(piece + DIM, top, mask=tl.arange(0, 16) < GROUP)
        tl.store(piece + DIM + 1, total, mask=tl.arange(0, 16) < GROUP)


@triton.jit
def _join_splits(
    partial, out, HEADS: tl.constexpr, DIM: tl.constexpr, SPLITS: tl.constexpr, OVERLAP: tl.constexpr
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    row = tl.program_id(0).to(tl.int64)
    head = row * HEADS + tl.program_id(1)
    d = tl.arange(0, DIM)
    pieces = partial + (head * SPLITS + tl.arange(0, SPLITS)) * (DIM + 2)
    top = tl.load(pieces + DIM)
    weight = tl.exp(top - tl.max(top, 0))
    total = tl.sum(tl.load(pieces + DIM + 1) * weight, 0)
    result = tl.sum(tl.load(pieces[:, None] + d[None, :]) * weight[:, None], 0)
    tl.store(out + head * DIM + d, (result / total).to(out.dtype.element_ty))
