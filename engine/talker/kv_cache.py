"""Storage of the talker's keys and values: pages, and the table of which pages each slot has."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.checkpoint import Checkpoint, TransformerConfig
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.model.attention import PagedRows

MEMORY_SHARE = 0.6  # of what is free once the weights are loaded; Code2Wav may share the device
PROMPT_POSITIONS = 512  # room for a prompt beside the frames


@dataclass(frozen=True, slots=True)
class Span:
    """Positions start .. stop - 1 of one slot."""

    slot: int
    start: int
    stop: int


class KVCache:
    """`num_pages` pages for `num_slots` slots, and one of each beyond them for padding rows.

    Zeroed, because masked positions must hold something finite.
    """

    def __init__(
        self,
        stack: TransformerConfig,
        *,
        num_pages: int,
        page_size: int,
        num_slots: int,
        max_context: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        shape = (stack.num_layers, 2, num_pages + 1, page_size, stack.num_kv_heads, stack.head_dim)
        self.storage = torch.zeros(shape, device=device, dtype=dtype)
        self.page_size = page_size
        self._padding_page = num_pages
        self._table = torch.full((num_slots + 1, -(-max_context // page_size)), num_pages, device=device)

    def assign(self, slot: int, pages: Sequence[int]) -> None:
        """The pages of a slot from position 0 on; what the slot had is forgotten."""
        self._table[slot] = self._padding_page
        self._table[slot, : len(pages)] = torch.tensor(pages, device=self._table.device)

    def single_rows(self, slots: Tensor, positions: Tensor, num_pages: Sequence[int]) -> PagedRows:
        """One row per slot; `num_pages` of each are in use."""
        return PagedRows(
            write_index=self._write_index(slots, positions),
            pages=self._table[slots, : max(num_pages)],
            num_pages=num_pages,
            positions=positions[:, None],
            tile_index=None,
        )

    def span_rows(self, slots: Tensor, positions: Tensor, spans: Sequence[Span]) -> PagedRows:
        """The rows of `spans` one after the other; a tile is what falls into one page.

        Tiles are cut at the pages, not at the spans, and see whole pages: so a row's result does not depend on how the
        prompt was cut into spans.
        """
        tile_slots: list[int] = []
        tile_pages: list[int] = []
        tile_index: list[np.ndarray] = []
        for span in spans:
            span_positions = np.arange(span.start, span.stop)
            first, last = span.start // self.page_size, (span.stop - 1) // self.page_size
            tile_index.append(span_positions + (len(tile_pages) - first) * self.page_size)
            tile_pages.extend(range(first, last + 1))
            tile_slots.extend([span.slot] * (last + 1 - first))
        device = self._table.device
        pages = torch.tensor(tile_pages, device=device)
        return PagedRows(
            write_index=self._write_index(slots, positions),
            pages=self._table[torch.tensor(tile_slots, device=device), : max(tile_pages) + 1],
            num_pages=[page + 1 for page in tile_pages],
            positions=pages[:, None] * self.page_size + torch.arange(self.page_size, device=device),
            tile_index=torch.from_numpy(np.concatenate(tile_index)).to(device),
        )

    def _write_index(self, slots: Tensor, positions: Tensor) -> Tensor:
        pages = self._table[slots, positions // self.page_size]
        return pages * self.page_size + positions % self.page_size


def fitting_num_pages(checkpoint: Checkpoint, config: EngineConfig, device: torch.device, dtype: torch.dtype) -> int:
    """Pages for every slot's longest utterance of default length, as far as the memory that is free now allows."""
    if config.num_pages:
        return config.num_pages
    stack = checkpoint.talker.stack
    page_bytes = stack.num_layers * 2 * config.page_size * stack.num_kv_heads * stack.head_dim * dtype.itemsize
    positions = min(config.max_context, PROMPT_POSITIONS + checkpoint.default_sampling.max_frames)
    wanted = config.num_slots * -(-positions // config.page_size)
    affordable = int(_free_bytes(device) * MEMORY_SHARE) // page_bytes
    needed = -(-config.max_context // config.page_size)
    if affordable < needed:
        raise EngineError(
            f"{device} has memory for {affordable} KV pages of {page_bytes} bytes; one stream of {config.max_context} "
            f"positions needs {needed}: lower max_context or free memory"
        )
    return max(needed, min(wanted, affordable))


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
