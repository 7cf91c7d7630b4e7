"""Draws one id per row without a sort: the thresholds of top-k and top-p are found bit by bit."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

# Upper bits of a score, as a float32, in which two scores of this dtype can differ.
_ORDER_BITS = {torch.bfloat16: 16, torch.float16: 20, torch.float32: 32}


def choose(
    logits: Tensor,
    do_sample: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    uniform: Tensor,
    table: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw ids [rows] from logits [rows, ids]. The other arguments are [rows]; `uniform` may be a column of a matrix.

    Returns the ids and, if it is given, their rows of `table` [ids, size].
    Twin: `sonorant.engine.model.sampling.choose`.
    """
    rows, num_ids = logits.shape
    out = torch.empty(rows, device=logits.device, dtype=torch.int64)
    size = 0 if table is None else table.shape[1]
    embedded = logits.new_empty(rows, size, dtype=logits.dtype if table is None else table.dtype)
    block = triton.next_power_of_2(num_ids)
    _choose[(rows,)](
        logits,
        logits.stride(0),
        do_sample,
        temperature,
        top_k,
        top_p,
        uniform,
        uniform.stride(0),
        out,
        num_ids,
        embedded if table is None else table,
        embedded,
        size,
        BLOCK=block,
        ORDER_BITS=_ORDER_BITS[logits.dtype],
        BLOCK_EMBEDDING=triton.next_power_of_2(size) if size else 0,
        num_warps=max(1, min(8, block // 512)),
        **overlap(logits),
    )
    return out, embedded


@triton.jit
def _add_both(a, b, c, d):
    return a + c, b + d


@triton.jit
def _choose(
    logits, logits_stride, do_sample, temperature, top_k, top_p, uniform, uniform_stride, out, num_ids, table, embedded,
    size, BLOCK: tl.constexpr, ORDER_BITS: tl.constexpr, BLOCK_EMBEDDING: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < num_ids
    score = tl.load(logits + row * logits_stride + at, mask=inside, other=float("-inf")).to(tl.float32)
    # With NaN among the scores, argmax may be outside the ids: clamp to any valid id.
    place = tl.minimum(tl.argmax(score, 0), num_ids - 1)
    if tl.load(do_sample + row) != 0:
        # The scores as unsigned integers in the same order; padding is below every score.
        bits = score.to(tl.uint32, bitcast=True)
        order = tl.where(bits >> 31 == 0, bits | 0x80000000, bits ^ 0xFFFFFFFF)
        order = tl.where(inside, order, 0)
        score = score / tl.load(temperature + row)
        k = tl.load(top_k + row)
        k = tl.where((k > 0) & (k < num_ids), k, num_ids)
        threshold = tl.zeros([], tl.uint32)
        for pair in tl.static_range(ORDER_BITS // 2):  # two bits at a time, as sums take longer than comparisons
            first = threshold | (tl.full([], 0x40000000, tl.uint32) >> (2 * pair))
            second = threshold | (tl.full([], 0x80000000, tl.uint32) >> (2 * pair))
            third = first | second
            at_least = (order >= first).to(tl.int32) + ((order >= second).to(tl.int32) << 16)
            both, num_third = tl.reduce((at_least, (order >= third).to(tl.int32)), 0, _add_both)
            threshold = tl.where((both & 0xFFFF) >= k, first, threshold)
            threshold = tl.where((both >> 16) >= k, second, threshold)
            threshold = tl.where(num_third >= k, third, threshold)
        is_kept = inside & (order >= threshold)
        highest = tl.max(score, 0)
        weight = tl.where(is_kept, tl.exp(score - highest), 0.0)
        p = tl.load(top_p + row)
        if p < 1.0:
            probability = weight / tl.sum(weight, 0)
            removable = 1.0 - p
            # The border: the highest order with a total probability of at most `removable` below it.
            border = tl.zeros([], tl.uint32)
            for i in range(ORDER_BITS):
                candidate = border | (tl.full([], 0x80000000, tl.uint32) >> i)
                below = tl.sum(tl.where(order < candidate, probability, 0.0), 0)
                border = tl.where(below <= removable, candidate, border)
            border = tl.minimum(border, tl.max(order, 0))
            below = tl.sum(tl.where(order < border, probability, 0.0), 0)
            # Of equal scores at the border, those of the lowest ids are removed first; at least one stays.
            is_border = order == border
            rank = tl.cumsum(is_border.to(tl.int32), 0)
            each = tl.max(tl.where(is_border, probability, 0.0), 0)
            goes = (below + rank * each <= removable) & (rank < tl.sum(is_border.to(tl.int32), 0))
            is_kept &= (order > border) | (is_border & ~goes)
            weight = tl.where(is_kept, weight, 0.0)
        cumulative = tl.cumsum(weight, 0)
        target = tl.load(uniform + row * uniform_stride) * tl.sum(weight, 0)
        last = tl.max(tl.where(weight > 0.0, at, 0), 0)  # if rounding leaves none above the target
        place = tl.min(tl.where((weight > 0.0) & (cumulative > target), at, last), 0)
    tl.store(out + row, place.to(tl.int64))
    if BLOCK_EMBEDDING > 0:
        value = tl.arange(0, BLOCK_EMBEDDING)
        inside = value < size
        tl.store(embedded + row * size + value, tl.load(table + place * size + value, mask=inside), mask=inside)
