"""Looks up embeddings and adds them up: what goes into the talker, and what a frame leaves for the next step.

The tables of all codebooks are concatenated to one.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

BLOCK = 512


@dataclass(frozen=True, slots=True)
class PromptItems:
    """The codec part of rows of which some are of prompts."""

    is_decode: Tensor  # [rows], int64; 1: a decode row, whose codec part is its slot's last frame
    items: Tensor  # [rows], int64; ids of `table`; negative: none
    table: Tensor  # [ids, size]
    others: Tensor  # [rows or more, size]: codec parts that are no ids, else 0


def row_inputs(
    slots: Tensor, text_ids: Tensor, text_table: Tensor, last_frame: Tensor, prompts: PromptItems | None = None
) -> Tensor:
    """Return the talker's input rows [rows, size]: the codec part plus row `text_ids` [rows] of `text_table`.

    A negative text id adds nothing. The codec part is row `slots` [rows] of last_frame [slots, size], or what
    `prompts` says. Twin: `embed_text` and `embed_codec` of `sonorant.engine.model.talker.Talker`, and additions.
    """
    rows, size = len(slots), text_table.shape[1]
    out = text_table.new_empty(rows, size)
    given = (slots, slots, out, out) if prompts is None else (
        *(prompts.is_decode, prompts.items, prompts.table, prompts.others),
    )  # fmt: skip
    _row_inputs[(rows, triton.cdiv(size, BLOCK))](
        slots, text_ids, text_table, last_frame, *given, out, size,
        HAS_PROMPTS=prompts is not None, BLOCK=BLOCK, num_warps=4, **overlap(out),
    )  # fmt: skip
    return out


def sum_embeddings(codes: Tensor, tables: Tensor, first_rows: Tensor) -> Tensor:
    """Sum, for codes [rows, books] int64, rows `first_rows[b] + code` of `tables` [all rows, size]: [rows, size].

    Twin: `sonorant.engine.model.talker.sum_frame`.
    """
    out = tables.new_empty(len(codes), tables.shape[1])
    _launch_sum(codes, tables, first_rows, out)
    return out


def keep_frames(
    codes: Tensor, broken: Tensor, tables: Tensor, first_rows: Tensor, slots: Tensor, last_frame: Tensor, mark: int
) -> Tensor:
    """Write the sum of each row's embeddings to row `slots` [rows] of last_frame [slots, size].

    Returns the codes as int16 [rows, books]; the first is `mark` where broken [rows].
    """
    frames = codes.new_empty(codes.shape, dtype=torch.int16)
    _launch_sum(codes, tables, first_rows, last_frame, (slots, broken, frames), mark)
    return frames


def _launch_sum(
    codes: Tensor,
    tables: Tensor,
    first_rows: Tensor,
    out: Tensor,
    kept: tuple[Tensor, Tensor, Tensor] | None = None,
    mark: int = 0,
) -> None:
    (rows, num_books), size = codes.shape, tables.shape[1]
    _sum_embeddings[(rows, triton.cdiv(size, BLOCK))](
        codes, tables, first_rows, out, *(kept or (codes, codes, codes)), size, mark,
        BOOKS=num_books, PADDED_BOOKS=triton.next_power_of_2(num_books), KEEPS=kept is not None, BLOCK=BLOCK,
        num_warps=4, **overlap(out),
    )  # fmt: skip


@triton.jit
def _row_inputs(
    slots, text_ids, text_table, last_frame, is_decode, items, table, others, out, size,
    HAS_PROMPTS: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    text_id = tl.load(text_ids + row)
    frame = tl.load(slots + row)
    if HAS_PROMPTS:  # what is absent has no elements
        decodes = tl.load(is_decode + row) == 1
        item = tl.load(items + row)
        num_frame, num_other = tl.where(decodes, size, 0), tl.where(decodes, 0, size)
        num_item = tl.where(decodes | (item < 0), 0, size)
        codec = tl.load(last_frame + frame * size + at, mask=at < num_frame, other=0.0).to(tl.float32)
        codec += tl.load(table + item * size + at, mask=at < num_item, other=0.0).to(tl.float32)
        codec += tl.load(others + row * size + at, mask=at < num_other, other=0.0).to(tl.float32)
    else:
        codec = tl.load(last_frame + frame * size + at, mask=at < size, other=0.0).to(tl.float32)
    num_text = tl.where(text_id < 0, 0, size)
    text = tl.load(text_table + text_id * size + at, mask=at < num_text, other=0.0).to(tl.float32)
    tl.store(out + row * size + at, (codec + text).to(out.dtype.element_ty), mask=at < size)


@triton.jit
def _sum_embeddings(
    codes, tables, first_rows, out, slots, broken, frames, size, mark,
    BOOKS: tl.constexpr, PADDED_BOOKS: tl.constexpr, KEEPS: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    total = tl.zeros([BLOCK], tl.float32)
    for book in tl.static_range(BOOKS):
        table_row = tl.load(first_rows + book) + tl.load(codes + row * BOOKS + book)
        total += tl.load(tables + table_row * size + at, mask=inside, other=0.0).to(tl.float32)
    target = row
    if KEEPS:
        target = tl.load(slots + row)
        if tl.program_id(1) == 0:
            books = tl.arange(0, PADDED_BOOKS)
            code = tl.load(codes + row * BOOKS + books, mask=books < BOOKS, other=0)
            code = tl.where((books == 0) & (tl.load(broken + row) != 0), mark, code)
            tl.store(frames + row * BOOKS + books, code.to(tl.int16), mask=books < BOOKS)
    tl.store(out + target * size + at, total.to(out.dtype.element_ty), mask=inside)
