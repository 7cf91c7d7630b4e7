"""Steps of the talker in plain torch operations: for large models on the CPU, and as the reference for other steps."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.model.alignment import AlignmentHead
from sonorant.engine.model.attention import WatchedHead
from sonorant.engine.model.layers import RotaryTable
from sonorant.engine.model.sampling import Sampling, choose, is_drawable, uniforms
from sonorant.engine.model.talker import Talker, sum_frame
from sonorant.engine.talker.run.inputs import ROW_MULTIPLE, ints, prompt_inputs
from sonorant.engine.talker.run.kv_cache import KVCache, Span
from sonorant.engine.talker.run.slot_state import SlotArrays
from sonorant.engine.talker.schedule.rows import BROKEN, DecodeRow, DecodeRows, PrefillRow
from sonorant.engine.talker.schedule.stream import NOT_WATCHED
from sonorant.engine.talker.schedule.text_tracker import NO_LOGITS, WINDOW
from sonorant.engine.types import Float32Array, Int16Array, PassCounts


class BlockingSteps:
    """Steps that are over when they return, on the CPU and as the reference."""

    def __init__(self, talker: Talker, checkpoint: Checkpoint, cache: KVCache, slots: SlotArrays) -> None:
        self.passes = PassCounts()
        self.alignment_head: AlignmentHead | None = None
        self.text_logits: Float32Array | None = None
        self._talker = talker
        self._cache = cache
        self._slots = slots
        self._num_codebooks = checkpoint.talker.num_codebooks
        self._pad_text_id = checkpoint.text_ids.tts_pad

    def begin(self, rows: Sequence[PrefillRow]) -> None:
        """Set the slots of these rows up for new streams."""
        for row in rows:
            self._cache.assign(row.slot, row.pages)
            self._slots.reset(row.slot, row.sampling, row.known_codes)

    def step(self, prefills: Sequence[PrefillRow], decodes: DecodeRows) -> Int16Array:
        """Make a step, and return the codes [rows that sample, codebooks]."""
        raise NotImplementedError


class PlainSteps(BlockingSteps):
    def __init__(
        self, talker: Talker, checkpoint: Checkpoint, config: EngineConfig, cache: KVCache, slots: SlotArrays
    ) -> None:
        super().__init__(talker, checkpoint, cache, slots)
        self._padding_slot = config.talker.num_slots
        self._device = device = cache.storage.device
        dtype = cache.storage.dtype
        self._rotary = RotaryTable(checkpoint.talker.stack, config.talker.max_context, device, dtype)
        self._predictor_rotary = RotaryTable(checkpoint.code_predictor.stack, self._num_codebooks, device, dtype)

    def step(self, prefills: Sequence[PrefillRow], decodes: DecodeRows) -> Int16Array:
        self.text_logits = None if self.alignment_head is None else NO_LOGITS
        hidden = []
        sampling: list[tuple[int, int, bool]] = []  # slot, frame index, allow_eos
        if prefills:
            hidden.append(self._prefill(prefills))
            sampling.extend((row.slot, row.first_frame, row.allow_eos) for row in prefills if row.samples)
        if decodes:
            hidden.append(self._decode(decodes))
            sampling.extend((row.slot, row.frame_index, row.allow_eos) for row in decodes)
        if not sampling:
            return np.empty((0, self._num_codebooks), np.int16)
        frames = self._sample(torch.cat(hidden) if len(hidden) > 1 else hidden[0], sampling)
        codes: Int16Array = frames.to(torch.int16).cpu().numpy()
        return codes

    def _prefill(self, rows: Sequence[PrefillRow]) -> Tensor:
        """Run prompt rows; return the hidden states [rows that sample, hidden]."""
        spans = [Span(row.slot, row.start, row.stop) for row in rows]
        num_rows = sum(row.stop - row.start for row in rows)
        last_rows = np.cumsum([row.stop - row.start for row in rows])[[row.samples for row in rows]] - 1
        x = prompt_inputs(self._talker, rows)
        if padding := len(x) - num_rows:
            spans.append(Span(self._padding_slot, 0, padding))
        self.passes.add(num_rows, len(x))
        slots = self._ints(np.concatenate([np.full(s.stop - s.start, s.slot) for s in spans]))
        positions = self._ints(np.concatenate([np.arange(s.start, s.stop) for s in spans]))
        cache = self._cache
        hidden = self._talker(x, self._rotary, positions, cache.storage, cache.span_rows(spans, slots, positions))
        out: Tensor = hidden[self._ints(last_rows)]
        return out

    def _decode(self, rows: DecodeRows) -> Tensor:
        """Run decode rows; return their hidden states [rows, hidden]."""
        table = rows.columns.T
        padding = -len(rows) % ROW_MULTIPLE
        self.passes.add(len(rows), len(rows) + padding)
        padding_row = DecodeRow(self._padding_slot, self._pad_text_id, 0, 0, False)
        table = np.concatenate([table, np.array([padding_row] * padding, np.int64).reshape(padding, table.shape[1])])
        slots, text_ids, positions, *_ = self._ints(table).unbind(1)
        x = self._slots.last_frame[slots] + self._talker.embed_text(text_ids)
        cache = self._cache
        used = list(zip(rows.columns[0].tolist(), rows.columns[2].tolist(), strict=True))
        watch = self._watch(rows)
        hidden: Tensor = self._talker(
            x, self._rotary, positions, cache.storage, cache.single_rows(used, slots, positions), watch
        )
        if watch is not None and (logits := watch[1].logits) is not None:
            self.text_logits = logits.float().cpu().numpy()
        return hidden[: len(rows)]

    def _watch(self, rows: DecodeRows) -> tuple[int, WatchedHead] | None:
        watched = [i for i, row in enumerate(rows) if row.watched != NOT_WATCHED]
        if self.alignment_head is None or not watched:
            return None
        slots, first = [rows[i].slot for i in watched], [rows[i].watched for i in watched]
        places = self._cache.places(slots, first, WINDOW)
        return self.alignment_head.layer, WatchedHead(self.alignment_head.head, watched, places)

    def _sample(self, hidden: Tensor, rows: Sequence[tuple[int, int, bool]]) -> Tensor:
        """Draw frames [rows, codebooks] from hidden states [rows, hidden], and update the state of the slots."""
        num_rows = len(rows)
        if padding := -num_rows % ROW_MULTIPLE:
            rows = [*rows, *[(self._padding_slot, 0, False)] * padding]
            hidden = torch.cat([hidden, hidden.new_zeros(padding, hidden.shape[1])])
        self.passes.add(num_rows, len(rows))
        slots, frame_index, allow_eos = self._ints(rows).unbind(1)
        state = self._slots
        uniform = None
        if state.any_samples(slot for slot, _, _ in rows):
            uniform = uniforms(state.seed[slots], frame_index, self._num_codebooks)

        talker = self._talker
        scores = state.first_scores(talker.codec_head(hidden), slots, allow_eos)
        first = _choose(scores, state.talker.at(slots), uniform, 0)
        state.seen[slots, first] = True

        first_embedding = talker.model.codec_embedding(first)
        predictor_sampling = state.predictor.at(slots)
        codes, embeddings = talker.code_predictor.predict(
            hidden,
            first_embedding,
            self._num_codebooks,
            self._predictor_rotary,
            lambda book, logits: _choose(logits.float(), predictor_sampling, uniform, book),
        )
        state.last_frame[slots] = sum_frame([first_embedding, *embeddings])
        return torch.stack([first.where(is_drawable(scores), BROKEN), *codes], 1)[:num_rows]

    def _ints(self, values: Sequence[object] | np.ndarray) -> Tensor:
        return ints(values, self._device)


def _choose(logits: Tensor, sampling: Sampling, uniform: Tensor | None, book: int) -> Tensor:
    """Choose ids of codebook `book`. `uniform` is None if no row samples, which saves the sort that sampling needs."""
    return logits.argmax(-1) if uniform is None else choose(logits, sampling, uniform[:, book])
