"""Attention of flat rows over keys and values from earlier steps: paged (talker), or of one frame (code predictor).

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

    A tile is a set of query rows of one stream that see the same keys: one row (decode), or the rows of one page
    (prefill). Positions of the pool are counted through all its pages.
    """

    write_index: Tensor  # [rows], positions of the pool
    seen: Sequence[Tensor | slice]  # the positions of the pool that each tile sees; a slice if they are consecutive
    mask: Tensor | None  # [tiles, queries, keys], bool; None: every query sees all keys
    tile_index: Tensor | None  # [rows], index of each row in the flattened tiles x queries; None: row i is tile i


@dataclass(slots=True)
class WatchedHead:
    """Computes the attention logits of one head for some rows of a batch, each at positions of its own."""

    head: int
    rows: Sequence[int]
    places: Tensor  # [watched rows, positions], positions of the pool
    logits: Tensor | None = None  # [watched rows, positions]; None before `look`

    def look(self, q: Tensor, keys: Tensor) -> None:
        """Set `logits`, from q [rows, heads, head_dim] and keys [positions, kv_heads, head_dim] that are written."""
        kv_head = self.head * keys.shape[1] // q.shape[1]
        seen = keys[:, kv_head].index_select(0, self.places.view(-1)).view(*self.places.shape, -1)
        looking = q[self.rows, self.head].unsqueeze(-1)
        self.logits = torch.bmm(seen, looking).squeeze(-1) * q.shape[-1] ** -0.5  # einsum is slower than bmm


def watched_attention(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, rows: PagedRows, watch: WatchedHead
) -> Tensor:
    """Do `paged_attention`, and have `watch` look at it."""
    out = paged_attention(q, k, v, keys, values, rows)
    watch.look(q, keys)
    return out


def paged_attention(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, rows: PagedRows) -> Tensor:
    """Write k and v ([rows, kv_heads, head_dim]) to the pools ([positions, kv_heads, head_dim]) and attend.

    Where a key is masked the pools may hold any finite value, as its weight is zero. Padding rows, which have no tile,
    come out as zeros.
    """
    keys.index_copy_(0, rows.write_index, k)
    values.index_copy_(0, rows.write_index, v)
    num_queries = 1 if rows.mask is None else rows.mask.shape[1]
    tiles = q if rows.tile_index is None else _scattered(q, rows.tile_index, len(rows.seen) * num_queries)
    tiles = _fold_heads(tiles, num_queries, k.shape[1])
    # One tile at a time: the last bit of the CPU's matrix products depends on the shape of the whole batch, and a
    # stream's codes must not depend on its neighbours.
    out = q.new_zeros(tiles.shape)
    for i, seen in enumerate(rows.seen):
        seen_keys, seen_values = (
            pool[seen] if isinstance(seen, slice) else pool.index_select(0, seen) for pool in (keys, values)
        )
        mask = None if rows.mask is None else rows.mask[i : i + 1, :, : len(seen_keys)]
        out[i] = _attend(tiles[i : i + 1], seen_keys.unsqueeze(0), seen_values.unsqueeze(0), mask)
    out = _unfold_heads(out, num_queries)
    return out if rows.tile_index is None else out.index_select(0, rows.tile_index)


def frame_attention(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, position: int) -> Tensor:
    """Attention within one frame of the code predictor: each stream has n new positions, from `position` on.

    q, k, v are [streams * n, heads, head_dim]; keys and values are [streams, codebooks, kv_heads, head_dim].
    """
    n = q.shape[0] // keys.shape[0]
    end = position + n
    keys[:, position:end] = k.view(-1, n, *k.shape[1:])
    values[:, position:end] = v.view(-1, n, *v.shape[1:])
    mask = None if n == 1 else torch.ones(1, n, end, dtype=torch.bool, device=q.device).tril(position)
    return _unfold_heads(_attend(_fold_heads(q, n, k.shape[1]), keys[:, :end], values[:, :end], mask), n)


def _attend(tiles: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """tiles [tiles, kv_heads, group * queries, head_dim]; keys, values [tiles, seen, kv_heads, head_dim]."""
    if mask is not None:
        mask = mask.repeat(1, tiles.shape[2] // mask.shape[1], 1).unsqueeze(1)
    return F.scaled_dot_product_attention(tiles, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=mask)


def _scattered(x: Tensor, index: Tensor, size: int) -> Tensor:
    return x.new_zeros(size, *x.shape[1:]).index_copy_(0, index, x)


def _fold_heads(q: Tensor, queries: int, kv_heads: int) -> Tensor:
    """[tiles * queries, heads, head_dim] -> [tiles, kv_heads, group * queries, head_dim]."""
    _, heads, head_dim = q.shape
    folded = q.view(-1, queries, kv_heads, heads // kv_heads, head_dim).permute(0, 2, 3, 1, 4)
    return folded.reshape(-1, kv_heads, heads // kv_heads * queries, head_dim)


def _unfold_heads(out: Tensor, queries: int) -> Tensor:
    """Undo `_fold_heads`: [tiles, kv_heads, group * queries, head_dim] -> [tiles * queries, heads, head_dim]."""
    tiles, kv_heads, _, head_dim = out.shape
    unfolded = out.view(tiles, kv_heads, -1, queries, head_dim).permute(0, 3, 1, 2, 4)
    return unfolded.reshape(tiles * queries, -1, head_dim)
