"""Attention of flat rows over keys and values kept from earlier steps: paged (talker) or one frame long (predictor).

Heads that share a key-value head are folded into the query rows, so keys and values are never repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Where the rows of one batch are written and what they see.

    A tile is a set of query rows of one stream that see the same pages: one row (decode), or the rows of one page
    (prefill).
    """

    write_index: Tensor  # [rows], positions in the pool
    pages: Tensor  # [tiles, pages]
    num_pages: Sequence[int]  # of each tile; the rest of its `pages` is padding
    positions: Tensor  # [tiles, queries], of the query rows in their stream
    tile_index: Tensor | None  # [rows], place of each row in tiles x queries; None: row i is tile i


def paged_attention(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, rows: PagedRows) -> Tensor:
    """Write k and v ([rows, kv_heads, head_dim]) to the pools ([pages, page_size, kv_heads, head_dim]) and attend.

    Everything finite may stand in the pools where no row is visible: masked keys have weight zero.
    """
    keys.flatten(0, 1).index_copy_(0, rows.write_index, k)
    values.flatten(0, 1).index_copy_(0, rows.write_index, v)
    num_tiles, num_queries = rows.positions.shape
    tiles = q
    if rows.tile_index is not None:
        tiles = q.new_zeros(num_tiles * num_queries, *q.shape[1:]).index_copy_(0, rows.tile_index, q)
    tiles = _fold_heads(tiles.view(num_tiles, num_queries, *q.shape[1:]), k.shape[1])
    page_size = keys.shape[1]
    if q.is_cuda:
        out = _attend_pages(tiles, keys, values, rows.pages, _mask(rows.positions, rows.pages.shape[1] * page_size))
    else:
        # One tile at a time: the matrix products of the CPU depend, in the last bit, on the shapes of the whole batch,
        # and what a stream says must not depend on its neighbours.
        mask = _mask(rows.positions, rows.pages.shape[1] * page_size)
        out = torch.cat(
            [
                _attend_pages(
                    tiles[i : i + 1], keys, values, rows.pages[i : i + 1, :n], mask[i : i + 1, ..., : n * page_size]
                )
                for i, n in enumerate(rows.num_pages)
            ]
        )
    out = _unfold_heads(out, num_queries).flatten(0, 1)
    return out if rows.tile_index is None else out[rows.tile_index]


def frame_attention(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, position: int) -> Tensor:
    """Attention within one frame of the code predictor: n new positions from `position` on, of each stream.

    q, k, v are [streams * n, heads, head_dim]; keys and values are [streams, kv_heads, codebooks, head_dim].
    """
    num_streams, kv_heads = keys.shape[:2]
    n = q.shape[0] // num_streams
    end = position + n
    keys[:, :, position:end] = k.view(num_streams, n, *k.shape[1:]).transpose(1, 2)
    values[:, :, position:end] = v.view(num_streams, n, *v.shape[1:]).transpose(1, 2)
    queries = _fold_heads(q.view(num_streams, n, *q.shape[1:]), kv_heads)
    mask = None
    if n > 1:
        seen = torch.ones(n, end, dtype=torch.bool, device=q.device).tril(position)
        mask = seen.repeat(queries.shape[2] // n, 1)
    out = F.scaled_dot_product_attention(queries, keys[:, :, :end], values[:, :, :end], attn_mask=mask)
    return _unfold_heads(out, n).flatten(0, 1)


def _attend_pages(tiles: Tensor, keys: Tensor, values: Tensor, pages: Tensor, mask: Tensor) -> Tensor:
    """tiles [tiles, kv_heads, group * queries, head_dim]; pages [tiles, pages]; mask [tiles, 1, queries, positions]."""
    group = tiles.shape[2] // mask.shape[2]
    seen_keys = keys[pages].flatten(1, 2).transpose(1, 2)  # [tiles, kv_heads, positions, head_dim]
    seen_values = values[pages].flatten(1, 2).transpose(1, 2)
    return F.scaled_dot_product_attention(tiles, seen_keys, seen_values, attn_mask=mask.repeat(1, 1, group, 1))


def _mask(positions: Tensor, num_keys: int) -> Tensor:
    """[tiles, 1, queries, keys]: a query sees the positions up to its own."""
    return torch.arange(num_keys, device=positions.device) <= positions[:, None, :, None]


def _fold_heads(q: Tensor, kv_heads: int) -> Tensor:
    """[tiles, queries, heads, head_dim] -> [tiles, kv_heads, group * queries, head_dim]."""
    tiles, queries, heads, head_dim = q.shape
    folded = q.view(tiles, queries, kv_heads, heads // kv_heads, head_dim).permute(0, 2, 3, 1, 4)
    return folded.reshape(tiles, kv_heads, -1, head_dim)


def _unfold_heads(out: Tensor, queries: int) -> Tensor:
    """The inverse: [tiles, kv_heads, group * queries, head_dim] -> [tiles, queries, heads, head_dim]."""
    tiles, kv_heads, _, head_dim = out.shape
    unfolded = out.view(tiles, kv_heads, -1, queries, head_dim).permute(0, 3, 1, 2, 4)
    return unfolded.flatten(2, 3)
