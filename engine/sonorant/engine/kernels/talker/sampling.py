"""Draws one id per row without a sort: the thresholds of top-k and top-p are found bit by bit."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

# Upper bits of a score, as a float32, in which two scores of this dtype can differ.
_ORDER_BITS = {torch.bfloat16: 16, torch.float16: 20, torch.float32: 32}


@dataclass(frozen=True, slots=True)
class Draws:
    """How the rows of a step draw: each with the parameters of its slot. Random numbers depend on a slot's seed, the
    frame and the codebook alone."""

    slots: Tensor  # [rows], int64
    frames: Tensor  # [rows], int64
    # By slot:
    seed: Tensor  # int64
    do_sample: Tensor  # bool
    temperature: Tensor  # float32
    top_k: Tensor  # int64
    top_p: Tensor  # float32


@dataclass(frozen=True, slots=True)
class FirstBook:
    """What is special about the first codebook: ids that a slot has said before are penalized, some are banned."""

    seen: Tensor  # [slots, ids], bool; the id that is drawn is added
    penalty: Tensor  # [slots], float32
    banned: Tensor  # [ids], bool
    end_id: int
    may_end: Tensor  # [rows], int64; 0: the end id is banned
    broken: Tensor  # [rows], bool, written to: whether the highest score is not finite, so that the id means nothing


def choose(
    logits: Tensor,
    draws: Draws,
    codes: Tensor,
    book: int,
    *,
    table: Tensor | None = None,
    first: FirstBook | None = None,
    done: Tensor | None = None,
) -> Tensor:
    """Draw an id for each row of logits [rows, ids], and write it to column `book` of codes [rows, books], int64.

    Returns the ids' rows of `table` [ids, size], if it is given; else nothing of use. `done` [1] int32, which may be in
    pinned memory of the host, is set to 1.
    Twin: `sonorant.engine.model.sampling.choose`, with `uniforms` and, for the first book, `penalize_repetition`.
    """
    rows, num_ids = logits.shape
    size = 0 if table is None else table.shape[1]
    embedded = logits.new_empty(rows, size, dtype=logits.dtype if table is None else table.dtype)
    block = triton.next_power_of_2(num_ids)
    rules = (codes, codes, codes, codes, codes) if first is None else (
        *(first.seen, first.penalty, first.banned, first.may_end, first.broken),
    )  # fmt: skip
    _choose[(rows,)](
        logits,
        logits.stride(0),
        num_ids,
        draws.slots,
        draws.frames,
        draws.seed,
        draws.do_sample,
        draws.temperature,
        draws.top_k,
        draws.top_p,
        *rules,
        0 if first is None else first.end_id,
        codes,
        codes.shape[1],
        book,
        codes if table is None else table,
        embedded,
        size,
        codes if done is None else done,
        BLOCK=block,
        ORDER_BITS=_ORDER_BITS[logits.dtype if first is None else torch.float32],
        IS_FIRST=first is not None,
        HAS_DONE=done is not None,
        BLOCK_EMBEDDING=triton.next_power_of_2(size) if size else 0,
        num_warps=max(1, min(8, block // 256)),
        **overlap(logits),
    )
    return embedded


@triton.jit
def _uniform(seed, frame, book):
    """As `sonorant.engine.model.sampling.uniforms`: the finalizer of splitmix64."""
    x = ((seed << 32) | (frame << 8) | book).to(tl.uint64, bitcast=True)
    x = (x ^ (x >> 30)) * tl.full([], 0xBF58476D1CE4E5B9, tl.uint64)
    x = (x ^ (x >> 27)) * tl.full([], 0x94D049BB133111EB, tl.uint64)
    return ((x ^ (x >> 31)) >> 40).to(tl.float32) * (2.0**-24)


@triton.jit(do_not_specialize=["book"])
def _choose(
    logits, logits_stride, num_ids, slots, frames, seed, do_sample, temperature, top_k, top_p,
    seen, penalty, banned, may_end, broken, end_id, codes, num_books, book, table, embedded, size,
    done, BLOCK: tl.constexpr, ORDER_BITS: tl.constexpr, IS_FIRST: tl.constexpr, HAS_DONE: tl.constexpr,
    BLOCK_EMBEDDING: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < num_ids
    slot = tl.load(slots + row)
    frame = tl.load(frames + row)
    samples = tl.load(do_sample + slot) != 0
    uniform = _uniform(tl.load(seed + slot), frame, book.to(tl.int64))
    warmth = tl.load(temperature + slot)
    k = tl.load(top_k + slot)
    p = tl.load(top_p + slot)
    score = tl.load(logits + row * logits_stride + at, mask=inside, other=float("-inf")).to(tl.float32)
    if IS_FIRST:
        was_seen = tl.load(seen + slot * num_ids + at, mask=inside, other=0) != 0
        factor = tl.load(penalty + slot)
        score = tl.where(was_seen, tl.where(score < 0, score * factor, score / factor), score)
        is_banned = (tl.load(banned + at, mask=inside, other=0) != 0) | ((at == end_id) & (tl.load(may_end + row) == 0))
        score = tl.where(is_banned, float("-inf"), score)
        is_number = (score == score).to(tl.int32)
        is_finite = (tl.abs(tl.max(score, 0)) < float("inf")) & (tl.min(is_number, 0) == 1)
        tl.store(broken + row, ~is_finite)
    # With NaN among the scores, argmax may be outside the ids: clamp to any valid id.
    place = tl.minimum(tl.argmax(score, 0), num_ids - 1)
    if samples:
        # The scores as unsigned integers in the same order; padding is below every score.
        bits = score.to(tl.uint32, bitcast=True)
        order = tl.where(bits >> 31 == 0, bits | 0x80000000, bits ^ 0xFFFFFFFF)
        order = tl.where(inside, order, 0)
        score = score / warmth
        k = tl.where((k > 0) & (k < num_ids), k, num_ids)
        threshold = tl.zeros([], tl.uint32)
        for pair in tl.static_range(ORDER_BITS // 2):  # two bits at a time, as sums take longer than comparisons
            first = threshold | (tl.full([], 0x40000000, tl.uint32) >> (2 * pair))
            second = threshold | (tl.full([], 0x80000000, tl.uint32) >> (2 * pair))
            third = first | second
            at_least = (order >= first).to(tl.int32) + ((order >= second).to(tl.int32) << 16)
            counts = tl.sum(at_least.to(tl.int64) + ((order >= third).to(tl.int64) << 32), 0)
            threshold = tl.where((counts & 0xFFFF) >= k, first, threshold)
            threshold = tl.where(((counts >> 16) & 0xFFFF) >= k, second, threshold)
            threshold = tl.where((counts >> 32) >= k, third, threshold)
        is_kept = inside & (order >= threshold)
        highest = tl.max(score, 0)
        weight = tl.where(is_kept, tl.exp(score - highest), 0.0)
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
        target = uniform * tl.sum(weight, 0)
        last = tl.max(tl.where(weight > 0.0, at, 0), 0)  # if rounding leaves none above the target
        place = tl.min(tl.where((weight > 0.0) & (cumulative > target), at, last), 0)
    tl.store(codes + row * num_books + book, place.to(tl.int64))
    if HAS_DONE and row == 0:
        tl.store(done, 1)
    if IS_FIRST:
        tl.store(seen + slot * num_ids + place, tl.full([], 1, tl.int1))
    if BLOCK_EMBEDDING > 0:
        value = tl.arange(0, BLOCK_EMBEDDING)
        inside = value < size
        tl.store(embedded + row * size + value, tl.load(table + place * size + value, mask=inside), mask=inside)
