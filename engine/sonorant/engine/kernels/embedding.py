"""Sums one embedding per codebook; the tables of all codebooks are concatenated to one."""

import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

BLOCK = 512


def sum_embeddings(codes: Tensor, tables: Tensor, first_rows: Tensor) -> Tensor:
    """Sum, for codes [rows, books] int64, rows `first_rows[b] + code` of `tables` [all rows, size]: [rows, size].

    Twin: `sonorant.engine.model.talker.sum_frame`.
    """
    rows, num_books = codes.shape
    size = tables.shape[1]
    out = tables.new_empty(rows, size)
    grid = (rows, triton.cdiv(size, BLOCK))
    _sum_embeddings[grid](
        codes, tables, first_rows, out, size, BOOKS=num_books, BLOCK=BLOCK, num_warps=4, **overlap(out)
    )
    return out


@triton.jit
def _sum_embeddings(
    codes, tables, first_rows, out, size, BOOKS: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr
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
    tl.store(out + row * size + at, total.to(out.dtype.element_ty), mask=inside)
