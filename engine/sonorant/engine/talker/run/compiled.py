"""Steps of the talker on the CPU, each by two calls of compiled functions (sonorant.engine.cpu): for small models, and
for rounded weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.library import NULL, Kept, at, structure
from sonorant.engine.cpu.model import format_of, frames_of, stack_of
from sonorant.engine.cpu.projection import CompiledProjection
from sonorant.engine.model import sampling
from sonorant.engine.model.layers import RotaryTable
from sonorant.engine.model.rounded import ROUNDINGS
from sonorant.engine.model.talker import Talker
from sonorant.engine.talker.run.inputs import ROW_MULTIPLE, ints, prompt_inputs
from sonorant.engine.talker.run.kv_cache import KVCache
from sonorant.engine.talker.run.plain import BlockingSteps
from sonorant.engine.talker.run.slot_state import SlotArrays
from sonorant.engine.talker.schedule.rows import DecodeRows, PrefillRow
from sonorant.engine.talker.schedule.stream import NOT_WATCHED
from sonorant.engine.talker.schedule.text_tracker import NO_LOGITS, WINDOW
from sonorant.engine.types import Float32Array, Int16Array, Int64Array


class CompiledSteps(BlockingSteps):
    """Like PlainSteps, but without padding rows: each row has the same bits in any batch anyway."""

    def __init__(
        self,
        functions: Any,
        talker: Talker,
        checkpoint: Checkpoint,
        config: EngineConfig,
        cache: KVCache,
        slots: SlotArrays,
    ) -> None:
        """`functions`: from `sonorant.engine.cpu.library.library()`; the model must be one that they support."""
        super().__init__(talker, checkpoint, cache, slots)
        self._functions = functions
        kept = self._kept = Kept()
        weights, device, dtype = format_of(talker), cache.storage.device, torch.float32
        self._text_rows: Float32Array | None = None  # of small models: the projection of a row took as long as a layer
        if weights in ROUNDINGS:
            talker.text_projection = CompiledProjection(functions, talker.text_projection)
        else:
            talker.fold_text_projection()
            self._text_rows = talker.model.text_embedding.weight.numpy()

        c = checkpoint.talker.stack
        rotary = RotaryTable(c, config.talker.max_context, device, dtype)
        self._stack = stack_of(talker.model.layers, talker.model.norm, c, rotary, kept, weights=weights)
        predictor = talker.code_predictor
        rotary = RotaryTable(checkpoint.code_predictor.stack, self._num_codebooks, device, dtype)
        self._predictor = stack_of(
            predictor.model.layers, predictor.model.norm, checkpoint.code_predictor.stack, rotary, kept, weights=weights
        )
        self._frames = frames_of(talker, checkpoint, self._predictor, kept, weights=weights)
        self._frames.banned = kept.tensor(slots.banned)
        self._frames.seen = kept.tensor(slots.seen)
        self._frames.last_frame = kept.tensor(slots.last_frame)
        self._frames.seed = kept.tensor(slots.seed)
        self._frames.penalty = kept.tensor(slots.penalty)
        self._frames.first = _sampling(slots.talker, kept)
        self._frames.later = _sampling(slots.predictor, kept)
        self._pool = structure(
            "Pool",
            storage=kept.tensor(cache.storage),
            num_positions=cache.storage.shape[2],
            table=kept.tensor(cache.table),
            table_width=cache.table.shape[1],
            page_size=cache.page_size,
        )

    def step(self, prefills: Sequence[PrefillRow], decodes: DecodeRows) -> Int16Array:
        self.text_logits = None if self.alignment_head is None else NO_LOGITS
        own_slots, text_ids, own_positions, own_frames, allow_eos, watched = np.ascontiguousarray(decodes.columns)
        lengths = [row.stop - row.start for row in prefills]
        num_prompt_rows = sum(lengths)
        num_rows = num_prompt_rows + len(decodes)
        self.passes.add(num_rows, num_rows)
        if not prefills:
            x, slots, positions = self._next_inputs(own_slots, text_ids), own_slots, own_positions
            self._forward(x, slots, positions, watched)
            return self._draw(x, slots, own_frames, allow_eos)
        x = np.empty((num_rows, self._stack.hidden), np.float32)
        x[:num_prompt_rows] = prompt_inputs(self._talker, prefills)[:num_prompt_rows].numpy()
        if decodes:
            x[num_prompt_rows:] = self._next_inputs(own_slots, text_ids)
        prompt_slots = [np.full(length, row.slot) for row, length in zip(prefills, lengths, strict=True)]
        prompt_positions = [np.arange(row.start, row.stop) for row in prefills]
        slots = np.concatenate([*prompt_slots, own_slots]).astype(np.int64)
        positions = np.concatenate([*prompt_positions, own_positions]).astype(np.int64)
        self._forward(x, slots, positions, watched)

        ends = np.cumsum(lengths, dtype=np.int64) - 1
        sampling_rows = [end for row, end in zip(prefills, ends, strict=True) if row.samples]
        drawing = np.array([*sampling_rows, *range(num_prompt_rows, num_rows)], np.int64)
        firsts = [(row.first_frame, row.allow_eos) for row in prefills if row.samples]
        first_frames, first_may_end = np.array(firsts, np.int64).reshape(-1, 2).T
        frames, may_end = np.concatenate([first_frames, own_frames]), np.concatenate([first_may_end, allow_eos])
        return self._draw(x[drawing], slots[drawing], frames, may_end)

    def _next_inputs(self, slots: Int64Array, text_ids: Int64Array) -> Float32Array:
        """Inputs of decode rows, [rows, hidden]: each slot's last frame plus one text id."""
        last_frames: Float32Array = self._slots.last_frame.numpy()[slots]
        if self._text_rows is not None:
            return last_frames + self._text_rows[text_ids]
        padding = [self._pad_text_id] * (-len(slots) % ROW_MULTIPLE)
        text = self._talker.embed_text(ints([*text_ids, *padding], self._slots.last_frame.device))
        texts: Float32Array = text[: len(slots)].numpy()
        return last_frames + texts

    def _forward(self, x: Float32Array, slots: Int64Array, positions: Int64Array, watched: Int64Array) -> None:
        """Turn the rows of `x` into hidden states, in place. Sets `text_logits` if decode rows are watched.

        `watched`: of the decode rows, which are the last ones."""
        head, are_watched = self.alignment_head, watched != NOT_WATCHED
        watch = NULL
        if head is not None and are_watched.any():
            first = np.full(len(x), -1, np.int64)
            first[len(x) - len(watched) :] = np.where(are_watched, watched, -1)
            logits: Float32Array = np.empty((len(x), WINDOW), np.float32)
            watch = structure(
                "Watch", layer=head.layer, head=head.head, count=WINDOW, first=at(first), logits=at(logits)
            )
        done = self._functions.stack_forward(self._stack, at(x), len(x), at(slots), at(positions), self._pool, watch)
        if done != 0:
            raise MemoryError("there was not enough memory for a step of the talker")
        if watch:
            self.text_logits = logits[len(x) - len(watched) :][are_watched]

    def _draw(self, hidden: Float32Array, slots: Int64Array, frames: Int64Array, may_end: Int64Array) -> Int16Array:
        codes: Int16Array = np.empty((len(hidden), self._num_codebooks), np.int16)
        if not len(hidden):
            return codes
        self.passes.add(len(hidden), len(hidden))
        done = self._functions.draw_frames(
            self._frames, at(hidden), len(hidden), at(slots), at(frames), at(may_end), at(codes)
        )
        if done != 0:
            raise MemoryError("there was not enough memory for frames of the code predictor")
        return codes


def _sampling(of: sampling.Sampling, kept: Kept) -> tuple[Any, ...]:
    return tuple(map(kept.tensor, (of.do_sample, of.temperature, of.top_k, of.top_p)))
