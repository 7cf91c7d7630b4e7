"""Sets slots up for new streams: sampling parameters, ids said so far, pages. One launch for all streams of a step."""

from collections.abc import Sequence

import numpy as np
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait
from sonorant.engine.types import Int64Array, SamplingParams

FIRST_PAGE = 11  # column; those before are the slot and its parameters


def slot_columns(
    slots: Sequence[int], params: Sequence[SamplingParams], pages: Sequence[Sequence[int]], width: int, no_page: int
) -> Int64Array:
    """Return what `begin_slots` takes, [FIRST_PAGE + width, slots]. Numbers with a fraction are the bits of a float64.

    `pages`: of each slot, at most `width`; the rest is filled with `no_page`.
    """
    columns = np.full((FIRST_PAGE + width, len(slots)), no_page, np.int64)
    columns[:6] = np.array(
        [
            (slot, p.seed, p.do_sample, p.top_k, p.subtalker_do_sample, p.subtalker_top_k)
            for slot, p in zip(slots, params, strict=True)
        ],
        np.int64,
    ).T
    numbers = np.array(
        [(p.repetition_penalty, p.temperature, p.top_p, p.subtalker_temperature, p.subtalker_top_p) for p in params],
        np.float64,
    )
    columns[6:FIRST_PAGE] = numbers.view(np.int64).T
    for i, of_slot in enumerate(pages):
        columns[FIRST_PAGE : FIRST_PAGE + len(of_slot), i] = of_slot
    return columns


def begin_slots(
    columns: Tensor,
    seed: Tensor,
    penalty: Tensor,
    first: Sequence[Tensor],
    later: Sequence[Tensor],
    seen: Tensor,
    table: Tensor,
) -> None:
    """Write what `slot_columns` made to the rows of the arrays by slot: seed and penalty [slots], those of the first
    codebook and of the others (do_sample, temperature, top_k, top_p, [slots] each), seen [slots, ids] (all False),
    table [slots, pages].

    Twins: `SlotArrays.reset` and `KVCache.assign` (`sonorant.engine.talker`).
    """
    num_rows, num_ids, width = columns.shape[1], seen.shape[1], table.shape[1]
    _begin[(num_rows,)](
        columns, num_rows, seed, penalty,
        *first, *later,
        seen, num_ids, table, width,
        FIRST_PAGE=FIRST_PAGE, BLOCK_IDS=triton.next_power_of_2(num_ids), BLOCK_PAGES=triton.next_power_of_2(width),
        num_warps=4, **overlap(seen),
    )  # fmt: skip


@triton.jit
def _integer(columns, num_rows, row, column: tl.constexpr):
    return tl.load(columns + column * num_rows + row)


@triton.jit
def _number(columns, num_rows, row, column: tl.constexpr):
    return tl.load(columns + column * num_rows + row).to(tl.float64, bitcast=True).to(tl.float32)


@triton.jit
def _begin(
    columns, num_rows, seed, penalty, do_sample, temperature, top_k, top_p,
    later_do_sample, later_temperature, later_top_k, later_top_p, seen, num_ids, table, width,
    FIRST_PAGE: tl.constexpr, BLOCK_IDS: tl.constexpr, BLOCK_PAGES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    row = tl.program_id(0)
    slot = _integer(columns, num_rows, row, 0)
    tl.store(seed + slot, _integer(columns, num_rows, row, 1))
    tl.store(do_sample + slot, _integer(columns, num_rows, row, 2) != 0)
    tl.store(top_k + slot, _integer(columns, num_rows, row, 3))
    tl.store(later_do_sample + slot, _integer(columns, num_rows, row, 4) != 0)
    tl.store(later_top_k + slot, _integer(columns, num_rows, row, 5))
    tl.store(penalty + slot, _number(columns, num_rows, row, 6))
    tl.store(temperature + slot, _number(columns, num_rows, row, 7))
    tl.store(top_p + slot, _number(columns, num_rows, row, 8))
    tl.store(later_temperature + slot, _number(columns, num_rows, row, 9))
    tl.store(later_top_p + slot, _number(columns, num_rows, row, 10))
    ids = tl.arange(0, BLOCK_IDS)
    tl.store(seen + slot * num_ids + ids, tl.zeros([BLOCK_IDS], tl.int1), mask=ids < num_ids)
    place = tl.arange(0, BLOCK_PAGES)
    inside = place < width
    pages = tl.load(columns + (FIRST_PAGE + place) * num_rows + row, mask=inside, other=0)
    tl.store(table + slot * width + place, pages, mask=inside)
