"""Stores the talker's keys and values: pages, and a table of the pages that each slot has."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sonorant.engine.card.device import free_bytes
from sonorant.engine.checkpoint.config import Checkpoint, TransformerConfig
from sonorant.engine.config import EngineConfig, TalkerConfig
from sonorant.engine.cuda import upload, zeros
from sonorant.engine.errors import EngineError
from sonorant.engine.model.attention import PagedRows
from sonorant.engine.model.memory import kv_page_bytes, num_pages
from sonorant.engine.types import Int64Array

# Of the memory that weights and the codec leave free, for all talkers of a GPU together. The rest is for graphs.
CUDA_SHARE = 0.8
CPU_SHARE = 0.25  # of all memory; pages that are never written take none


@dataclass(frozen=True, slots=True)
class Span:
    """Positions start .. stop - 1 of one slot."""

    slot: int
    start: int
    stop: int


class KVCache:
    """`num_pages` pages for the slots of `config`, and one more page and slot for padding rows.

    The pages are zeroed at first, because masked positions must hold finite values.
    """

    def __init__(
        self,
        stack: TransformerConfig,
        config: TalkerConfig,
        num_pages: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        page_size, num_slots = config.page_size, config.num_slots
        shape = (stack.num_layers, 2, (num_pages + 1) * page_size, stack.num_kv_heads, stack.head_dim)
        self.storage = zeros(shape, device, dtype)
        self.page_size = page_size
        self.padding_page = num_pages
        self._first_position: list[int | None] = [None] * (num_slots + 1)  # of slots whose pages are consecutive
        self.table = torch.full((num_slots + 1, config.pages_for(config.max_context)), num_pages, device=device)

    def assign(self, slot: int, pages: Sequence[int]) -> None:
        """Give a slot its pages, from position 0 on, in place of those it had."""
        self.table[slot] = self.padding_page
        self.table[slot, : len(pages)] = upload(np.array(pages, np.int64), self.table.device)
        is_run = all(page == pages[0] + i for i, page in enumerate(pages))
        self._first_position[slot] = pages[0] * self.page_size if is_run else None

    def single_rows(self, rows: Sequence[tuple[int, int]], slots: Tensor, positions: Tensor) -> PagedRows:
        """Where rows of different slots are written and what they see.

        `rows` are (slot, position); `slots` and `positions` may have padding rows after these.
        """
        write_index = self._pool_positions(slots, positions)
        return PagedRows(write_index, [self._seen(slot, position + 1) for slot, position in rows], None, None)

    def span_rows(self, spans: Sequence[Span], slots: Tensor, positions: Tensor) -> PagedRows:
        """Where the rows of `spans`, one after the other, are written and what they see. A tile has one page's rows.

        Tiles are cut at page limits, not at spans, and see whole pages, so a row's result does not depend on how the
        prompt was cut into spans. What an earlier stream left after a span in its last page is cleared: a NaN at a
        masked position would spoil the whole tile.
        """
        size, device = self.page_size, slots.device
        for span in spans:
            self._clear(span.slot, span.stop)
        tiles: list[tuple[int, int]] = []  # slot, number of the page in it
        tile_index: list[Int64Array] = []
        for span in spans:
            first, last = span.start // size, (span.stop - 1) // size
            tile_index.append(np.arange(span.start, span.stop) + (len(tiles) - first) * size)
            tiles.extend((span.slot, page) for page in range(first, last + 1))
        tile_pages = torch.tensor([page for _, page in tiles], device=device)
        every = torch.arange((max(page for _, page in tiles) + 1) * size, device=device)
        queries = tile_pages[:, None] * size + torch.arange(size, device=device)
        return PagedRows(
            write_index=self._pool_positions(slots, positions),
            seen=[self._seen(slot, (page + 1) * size) for slot, page in tiles],
            mask=every <= queries[:, :, None],
            tile_index=torch.from_numpy(np.concatenate(tile_index)).to(device),
        )

    def places(self, slots: Sequence[int], first: Sequence[int], count: int) -> Tensor:
        """Where `count` positions of each slot, from its `first` on, are in the pool: [slots, count].

        For positions beyond the last that a slot can have, the last one is given.
        """
        device, (_, width) = self.table.device, self.table.shape
        positions = torch.tensor(first, device=device)[:, None] + torch.arange(count, device=device)
        return self._pool_positions(
            torch.tensor(slots, device=device)[:, None], positions.clamp(max=width * self.page_size - 1)
        )

    def _clear(self, slot: int, position: int) -> None:
        """Zero the positions from this one to the end of its page."""
        if offset := position % self.page_size:
            page = int(self.table[slot, position // self.page_size])
            self.storage[:, :, page * self.page_size + offset : (page + 1) * self.page_size] = 0

    def _seen(self, slot: int, num_positions: int) -> Tensor | slice:
        first = self._first_position[slot]
        if first is not None:
            return slice(first, first + num_positions)
        every = torch.arange(num_positions, device=self.table.device)
        return self._pool_positions(torch.full_like(every, slot), every)

    def _pool_positions(self, slots: Tensor, positions: Tensor) -> Tensor:
        return self.table[slots, positions // self.page_size] * self.page_size + positions % self.page_size


def fitting_num_pages(checkpoint: Checkpoint, config: EngineConfig, dtype: torch.dtype, memory_bytes: int) -> int:
    """Return how many pages to make: enough for an utterance of default length in every slot, if memory allows.

    Raises EngineError if there is not enough memory for the longest stream.
    """
    needed, wanted = num_pages(checkpoint, config)
    if config.talker.num_pages:
        return config.talker.num_pages
    page_bytes = kv_page_bytes(checkpoint, config, dtype)
    affordable = memory_bytes // page_bytes
    if affordable < needed:
        raise EngineError(
            f"there is memory for {affordable} KV pages of {page_bytes} bytes, but one stream of "
            f"{config.talker.max_context} positions needs {needed}: lower --max-context or free memory on the talker's "
            "device"
        )
    return min(wanted, affordable)


def memory_budget_bytes(device: torch.device, allowed_bytes: int) -> int:
    """How many bytes all pages together may take. On a GPU at most `allowed_bytes` may be taken beside the weights."""
    if device.type == "cuda":
        return int(min(free_bytes(device), allowed_bytes) * CUDA_SHARE)
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * CPU_SHARE)
