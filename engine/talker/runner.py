"""Runs the talker and the code predictor: one `step` takes prompt pieces and decode rows and returns frames.

Owns the weights, the KV pages and what is kept per slot between steps: the last frame's embedding, the ids sampled so
far and the sampling parameters. Knows nothing of streams, text or credit; who runs when is the scheduler's business.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.checkpoint import Checkpoint
from engine.config import EngineConfig
from engine.cuda import compute_dtype, find_device
from engine.model.layers import RotaryTable
from engine.model.sampling import Sampling, choose, penalize_repetition, uniforms
from engine.model.talker import Talker, sum_frame
from engine.model.verify import verify_checkpoint
from engine.model.weights import TensorFile, init_random, load_module
from engine.talker.kv_cache import KVCache, Span, fitting_num_pages, memory_budget_bytes
from engine.talker.scheduler import DecodeRow, PrefillRow
from engine.types import NO_ID, REFERENCE_FRAME, X_VECTOR, Int16Array, PromptPlan, SamplingParams

# Row counts are multiples of this: the CPU's matrix product gives a row the same bits in any batch only from 4 rows on.
ROW_MULTIPLE = 4


class TalkerRunner:
    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        self._num_codebooks = checkpoint.talker.num_codebooks
        self._pad_text_id = checkpoint.text_ids.tts_pad
        self._padding_slot = config.num_slots
        self._device = device = find_device(config.talker_device)
        dtype = compute_dtype(config.dtype, checkpoint.dtype, device)
        self._talker = _load(checkpoint, config, device, dtype)

        stack = checkpoint.talker.stack
        self._rotary = RotaryTable(stack, config.max_context, device, dtype)
        self._predictor_rotary = RotaryTable(checkpoint.code_predictor.stack, self._num_codebooks, device, dtype)
        self.num_pages = fitting_num_pages(checkpoint, config, dtype, memory_budget_bytes(device))
        self._cache = KVCache(
            stack,
            num_pages=self.num_pages,
            page_size=config.page_size,
            num_slots=config.num_slots,
            max_context=config.max_context,
            device=device,
            dtype=dtype,
        )
        self._slots = _SlotState(config.num_slots + 1, checkpoint, device, dtype)
        self._banned = torch.zeros(checkpoint.talker.vocab_size, dtype=torch.bool, device=device)
        self._banned[list(checkpoint.talker.suppressed_ids)] = True
        self._banned[checkpoint.talker.codec_eos_id] = False
        self._is_eos = torch.zeros_like(self._banned)
        self._is_eos[checkpoint.talker.codec_eos_id] = True
        self._warm_up(checkpoint.default_sampling)

    @torch.inference_mode()
    def step(self, prefills: Sequence[PrefillRow], decodes: Sequence[DecodeRow]) -> Int16Array:
        """Frames [rows that sample, codebooks]: the prefills that reach the end of their prompt, then the decodes."""
        hidden = []
        sampling: list[tuple[int, int, bool]] = []  # slot, frame index, allow_eos
        if prefills:
            hidden.append(self._prefill(prefills))
            sampling.extend((row.slot, 0, row.allow_eos) for row in prefills if row.samples)
        if decodes:
            hidden.append(self._decode(decodes))
            sampling.extend((row.slot, row.frame_index, row.allow_eos) for row in decodes)
        if not sampling:
            return np.empty((0, self._num_codebooks), np.int16)
        frames = self._sample(torch.cat(hidden) if len(hidden) > 1 else hidden[0], sampling)
        codes: Int16Array = frames.to(torch.int16).cpu().numpy()
        return codes

    def _warm_up(self, sampling: SamplingParams) -> None:
        """One frame of each kind of step, so that the first stream finds libraries and allocators in motion."""
        plan = PromptPlan((self._pad_text_id,), (NO_ID,), trailing=(), text_ended=True)
        prompt = PrefillRow(0, (0,), plan, 0, 1, sampling, x_vector=None, reference_codes=None, allow_eos=False)
        self.step([prompt], [])
        self.step([], [DecodeRow(0, self._pad_text_id, position=1, frame_index=1, allow_eos=False)])

    def _prefill(self, rows: Sequence[PrefillRow]) -> Tensor:
        """Hidden states [rows that sample, hidden]."""
        spans: list[Span] = []
        text_ids: list[int] = []
        codec_items: list[int] = []
        last_rows: list[int] = []
        for row in rows:
            if row.start == 0:
                self._cache.assign(row.slot, row.pages)
                self._slots.reset(row.slot, row.sampling)
            spans.append(Span(row.slot, row.start, row.stop))
            text_ids.extend(row.plan.text_ids[row.start : row.stop])
            codec_items.extend(row.plan.codec_items[row.start : row.stop])
            if row.samples:
                last_rows.append(len(text_ids) - 1)
        if padding := -len(text_ids) % ROW_MULTIPLE:
            spans.append(Span(self._padding_slot, 0, padding))
            text_ids.extend([NO_ID] * padding)
            codec_items.extend([NO_ID] * padding)
        slots = self._ints(np.concatenate([np.full(s.stop - s.start, s.slot) for s in spans]))
        positions = self._ints(np.concatenate([np.arange(s.start, s.stop) for s in spans]))
        x = self._talker.embed_text(self._ints(text_ids)) + self._talker.embed_codec(self._ints(codec_items))
        self._add_voice(x, rows)
        cache = self._cache
        hidden = self._talker(x, self._rotary, positions, cache.storage, cache.span_rows(spans, slots, positions))
        out: Tensor = hidden[self._ints(last_rows)]
        return out

    def _add_voice(self, x: Tensor, rows: Sequence[PrefillRow]) -> None:
        """Add the codec parts that are no ids of the table: the speaker embedding and the reference frames."""
        first = 0
        for row in rows:
            items = np.array(row.plan.codec_items[row.start : row.stop])
            if row.x_vector is not None and (at := np.flatnonzero(items == X_VECTOR)).size:
                x[self._ints(first + at)] += torch.from_numpy(row.x_vector).to(x)
            if row.reference_codes is not None and (at := np.flatnonzero(items <= REFERENCE_FRAME)).size:
                codes = row.reference_codes[REFERENCE_FRAME - items[at]].astype(np.int64)
                x[self._ints(first + at)] += self._talker.embed_frames(self._ints(codes))
            first += len(items)

    def _decode(self, rows: Sequence[DecodeRow]) -> Tensor:
        """Hidden states [rows, hidden]."""
        table = np.array(rows, np.int64)
        padding = -len(rows) % ROW_MULTIPLE
        padding_row = DecodeRow(self._padding_slot, self._pad_text_id, 0, 0, False)
        table = np.concatenate([table, np.array([padding_row] * padding, np.int64).reshape(padding, table.shape[1])])
        slots, text_ids, positions, *_ = self._ints(table).unbind(1)
        x = self._slots.last_frame[slots] + self._talker.embed_text(text_ids)
        cache = self._cache
        used = [(row.slot, row.position) for row in rows]
        hidden: Tensor = self._talker(
            x, self._rotary, positions, cache.storage, cache.single_rows(used, slots, positions)
        )
        return hidden[: len(rows)]

    def _sample(self, hidden: Tensor, rows: Sequence[tuple[int, int, bool]]) -> Tensor:
        """Frames [rows, codebooks] from hidden states [rows, hidden]; what the slots keep is brought up to date."""
        num_rows = len(rows)
        if padding := -num_rows % ROW_MULTIPLE:
            rows = [*rows, *[(self._padding_slot, 0, False)] * padding]
            hidden = torch.cat([hidden, hidden.new_zeros(padding, hidden.shape[1])])
        slots, frame_index, allow_eos = self._ints(rows).unbind(1)
        state = self._slots
        uniform = None
        if state.any_samples(slot for slot, _, _ in rows):
            uniform = uniforms(state.seed[slots], frame_index, self._num_codebooks)

        talker = self._talker
        logits = penalize_repetition(talker.codec_head(hidden).float(), state.seen[slots], state.penalty[slots])
        banned = self._banned | (self._is_eos & (allow_eos == 0)[:, None])
        first = _choose(logits.masked_fill(banned, -torch.inf), state.talker.at(slots), uniform, 0)
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
        return torch.stack([first, *codes], 1)[:num_rows]

    def _ints(self, values: Sequence[object] | np.ndarray) -> Tensor:
        return torch.from_numpy(np.asarray(values, np.int64)).to(self._device)


class _SlotState:
    """What is kept per slot between steps, as arrays of all slots. A slot's row is overwritten when a prompt begins."""

    def __init__(self, num_slots: int, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> None:
        c = checkpoint.talker
        self.last_frame = torch.zeros(num_slots, c.stack.hidden_size, device=device, dtype=dtype)
        self.seen = torch.zeros(num_slots, c.vocab_size, device=device, dtype=torch.bool)
        self.seed = torch.zeros(num_slots, device=device, dtype=torch.int64)
        self.penalty = torch.ones(num_slots, device=device)
        self.talker = _greedy(num_slots, device)
        self.predictor = _greedy(num_slots, device)
        self._sampling_slots: set[int] = set()

    def reset(self, slot: int, p: SamplingParams) -> None:
        self.seen[slot] = False
        self.seed[slot] = p.seed
        self.penalty[slot] = p.repetition_penalty
        self.talker.set(slot, p.do_sample, p.temperature, p.top_k, p.top_p)
        self.predictor.set(slot, p.subtalker_do_sample, p.subtalker_temperature, p.subtalker_top_k, p.subtalker_top_p)
        if p.do_sample or p.subtalker_do_sample:
            self._sampling_slots.add(slot)
        else:
            self._sampling_slots.discard(slot)

    def any_samples(self, slots: Iterable[int]) -> bool:
        return not self._sampling_slots.isdisjoint(slots)


def _greedy(num_slots: int, device: torch.device) -> Sampling:
    return Sampling(
        do_sample=torch.zeros(num_slots, device=device, dtype=torch.bool),
        temperature=torch.ones(num_slots, device=device),
        top_k=torch.zeros(num_slots, device=device, dtype=torch.int64),
        top_p=torch.ones(num_slots, device=device),
    )


def _choose(logits: Tensor, sampling: Sampling, uniform: Tensor | None, book: int) -> Tensor:
    """Without random numbers, which cost a sort, where no row of the batch samples."""
    return logits.argmax(-1) if uniform is None else choose(logits, sampling, uniform[:, book])


def _load(checkpoint: Checkpoint, config: EngineConfig, device: torch.device, dtype: torch.dtype) -> Talker:
    with torch.device("meta"):
        talker = Talker(checkpoint)
    if config.load_format == "dummy":
        init_random(talker, device, dtype, config.seed)
    else:
        verify_checkpoint(checkpoint)
        load_module(talker, TensorFile(checkpoint.folder / "model.safetensors"), "talker.", device, dtype)
    talker.prepare()
    return talker
