"""Steps of the talker on CUDA: fused kernels in one graph per bucket of rows.

A step is one or two graphs. The first takes rows through the talker and leaves the hidden state of each slot in
`_hidden`. It is one for decode rows only, or one for prompt and decode rows together, if there are prompts. The second
draws whole frames for the rows that sample. Nothing else is computed in between, so the graphs of a step depend only on
two row counts. All of them are captured at the start; by workers that replace others, the rest while they serve.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sonorant.engine.card.device import free_bytes
from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cuda import (
    Buckets,
    bucket_sizes,
    download,
    start_download,
    upload,
    wait_for_work_so_far,
    work_so_far,
)
from sonorant.engine.deferred_work import DeferredWork
from sonorant.engine.kernels.cuda_code import HAS_BINDINGS
from sonorant.engine.kernels.folder import wait_until_filled
from sonorant.engine.kernels.gemm.linear import linear
from sonorant.engine.kernels.talker.attention import RowPositions, WatchedLogits, paged_attention
from sonorant.engine.kernels.talker.embedding import PromptItems, keep_frames, row_inputs, sum_embeddings
from sonorant.engine.kernels.talker.sampling import Draws, FirstBook, choose
from sonorant.engine.kernels.talker.slots import begin_slots, slot_columns
from sonorant.engine.model.alignment import AlignmentHead
from sonorant.engine.model.fused import FusedPredictor, FusedStack, fused_norm, join_rows, normed
from sonorant.engine.model.layers import RotaryTable
from sonorant.engine.model.sampling import Sampling
from sonorant.engine.model.talker import Talker
from sonorant.engine.talker.run.kv_cache import KVCache
from sonorant.engine.talker.run.slot_state import SlotArrays
from sonorant.engine.talker.schedule.rows import BROKEN, DecodeRows, PrefillRow
from sonorant.engine.talker.schedule.stream import NOT_WATCHED
from sonorant.engine.talker.schedule.text_tracker import NO_LOGITS, WINDOW
from sonorant.engine.types import (
    NO_ID,
    REFERENCE_FRAME,
    X_VECTOR,
    Float32Array,
    Int16Array,
    Int64Array,
    PassCounts,
)
from sonorant.logs import start

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Started:
    frames: Tensor  # [rows that sample, codebooks], in memory of the host; complete after `wait`
    wait: Callable[[], None] | None  # None: no row samples
    is_over: Callable[[], bool]  # raises RuntimeError if the device has failed
    wait_for_talker: Callable[[], None] | None
    watched_rows: Int64Array | None


TIMED_STEPS = 3  # of each number of rows; the first warms up
TIMED_POSITION = 128  # about the middle of a stream of one or two sentences
BOOKS_LEFT = 5  # codebooks still to be drawn when a step is nearly over: enough time to decide the next step
PAUSE_S = 20e-6
MAX_BEGUN = 64  # streams set up by one launch
SMALLEST_MIXED = 16  # rows; a prompt in the streaming layout has about ten


class FusedSteps:
    def __init__(
        self,
        talker: Talker,
        checkpoint: Checkpoint,
        config: EngineConfig,
        cache: KVCache,
        slots: SlotArrays,
        alignment_head: AlignmentHead | None = None,
    ) -> None:
        self._alignment_head = alignment_head
        self._started: deque[_Started] = deque()  # steps whose frames have not been taken
        self._last = _Started(torch.empty(0), None, lambda: True, None, None)  # the step started last
        talker.fold_text_projection()
        self._text_table = talker.model.text_embedding.weight
        self._codec_table = talker.model.codec_embedding.weight
        self._first_head = talker.codec_head.weight
        self._eos_id = checkpoint.talker.codec_eos_id
        self._cache, self._slots = cache, slots
        self._device = device = cache.storage.device
        self._num_codebooks = num_codebooks = checkpoint.talker.num_codebooks
        self._padding_slot = padding_slot = config.talker.num_slots
        sizes = bucket_sizes(config.talker.num_slots)
        mixed_sizes = bucket_sizes(config.talker.max_prefill_rows + config.talker.num_slots, SMALLEST_MIXED)
        self._max_context = config.talker.max_context

        rotary = RotaryTable(checkpoint.talker.stack, config.talker.max_context, device, torch.float32)
        self._stack = FusedStack(talker.model.layers, talker.model.norm, rotary)
        self._norm = fused_norm(talker.model.norm)
        tables = [talker.model.codec_embedding, *talker.code_predictor.model.codec_embedding][:num_codebooks]
        self._tables = join_rows([table.weight for table in tables])
        self._table_starts = torch.tensor([0, *np.cumsum([len(t.weight) for t in tables[:-1]])], device=device)
        self._predictor = FusedPredictor(talker.code_predictor, talker.model.codec_embedding, num_codebooks)
        hidden_size = checkpoint.talker.stack.hidden_size
        self._hidden = slots.last_frame.new_zeros(config.talker.num_slots + 1, hidden_size)
        self._voice = slots.last_frame.new_zeros(mixed_sizes[-1], hidden_size)  # codec parts that are no ids, else 0
        # Of the alignment head, by row. The kernel writes them to memory of the host, so that no copy is needed.
        self._logits = torch.zeros(mixed_sizes[-1], WINDOW, pin_memory=device.type == "cuda")

        # Written by the step under way once it has drawn this codebook; in memory of the host.
        self._late_book = max(1, num_codebooks - 1 - BOOKS_LEFT)
        self._late_flag = torch.zeros(1, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._is_nearly_over = self._late_flag.numpy()

        self.passes = PassCounts()
        self.deferred = DeferredWork()
        pad_text_id = checkpoint.text_ids.tts_pad
        begin_sizes = bucket_sizes(min(MAX_BEGUN, config.talker.num_slots))
        greedy = replace(checkpoint.default_sampling, do_sample=False, subtalker_do_sample=False)
        padding_begin = slot_columns([padding_slot], [greedy], [()], cache.table.shape[1], cache.padding_page)[:, 0]
        self._begin = Buckets(self._run_begin, padding_begin.tolist(), begin_sizes, PassCounts())
        self._decode = Buckets(self._run_decode_rows, [padding_slot, pad_text_id, 0, NOT_WATCHED], sizes, self.passes)
        padding_row = [padding_slot, NO_ID, 0, NO_ID, 0, padding_slot, NOT_WATCHED]
        self._mixed = Buckets(self._run_mixed_rows, padding_row, mixed_sizes, self.passes)
        self._sample = Buckets(self._run_sample, [padding_slot, 0, 0], sizes, self.passes)

    def begin(self, rows: Sequence[PrefillRow]) -> None:
        """Set the slots of these rows up for new streams."""
        width, largest = self._cache.table.shape[1], self._begin.sizes[-1]
        for at in range(0, len(rows), largest):
            some = rows[at : at + largest]
            slots, pages = [row.slot for row in some], [row.pages for row in some]
            params = [row.sampling for row in some]
            self._begin(slot_columns(slots, params, pages, width, self._cache.padding_page), self._device)
        for row in rows:
            if row.known_codes is not None:
                self._slots.note_said(row.slot, row.known_codes)

    def start(self, prefills: Sequence[PrefillRow], decodes: DecodeRows) -> None:
        """Start a step: prefills that end their prompt sample a frame, and decodes. At most one other step may be under
        way; this one follows it."""
        slots, text_ids, positions, _, _, watched = decodes.columns
        first_decode = sum(row.stop - row.start for row in prefills)
        if prefills:
            voiced = self._add_voices(prefills)
            self._mixed(_mixed_rows(prefills, decodes, self._padding_slot), self._device)
            if voiced:
                self._voice[: first_decode + len(decodes)].zero_()
        else:
            self._decode(np.stack([slots, text_ids, positions, watched]), self._device)
        sampling = _sampling_rows(prefills, decodes)
        if not sampling.shape[1]:
            none = torch.empty(0, self._num_codebooks, dtype=torch.int16)
            self._note(_Started(none, None, lambda: True, None, None))
            return
        wait_for_talker = None if self._alignment_head is None else wait_for_work_so_far(self._device)
        self._is_nearly_over[0] = 0
        frames = start_download(self._sample(sampling, self._device))
        wait, is_over = work_so_far(self._device)
        watched_rows = None if self._alignment_head is None else first_decode + np.flatnonzero(watched != NOT_WATCHED)
        self._note(_Started(frames, wait, is_over, wait_for_talker, watched_rows))

    def _note(self, step: _Started) -> None:
        self._last = step
        self._started.append(step)

    @property
    def text_logits(self) -> Float32Array | None:
        """Of the step started last; waits for its talker's part. The code predictor runs on meanwhile."""
        if self._alignment_head is None:
            return None
        step = self._last
        if step.watched_rows is None or step.wait_for_talker is None:
            return NO_LOGITS
        step.wait_for_talker()
        logits: Float32Array = self._logits.numpy()[step.watched_rows]
        return logits

    def wait_until_nearly_over(self) -> None:
        """Wait until most of the step started last is done."""
        # A device that has failed never sets the flag.
        while not self._is_nearly_over[0] and not self._last.is_over():
            time.sleep(PAUSE_S)

    def finish(self) -> Int16Array:
        """Wait for the oldest step under way, and return its frames [rows that sample, codebooks]."""
        step = self._started.popleft()
        if step.wait is not None:
            step.wait()
        codes: Int16Array = step.frames.numpy()
        return codes

    def step_times(self) -> dict[int, float]:
        """Measure the seconds that a frame takes, by rows, with steps of padding rows; for sizes between powers of
        two, the neighbours' will do. Call it only while there are no streams."""
        times_s, sizes = {}, self._decode.sizes
        for size in (size for size in sizes if size.bit_count() == 1 or size == sizes[-1]):
            decodes, samples = self._decode.padding_rows(size), self._sample.padding_rows(size)
            decodes[2] = min(TIMED_POSITION, self._max_context - 1)
            times_s[size] = math.inf
            for _ in range(TIMED_STEPS):  # the quickest counts: the codec may be getting ready on the same GPU
                began_s = time.perf_counter()
                self._decode(decodes, self._device)
                download(self._sample(samples, self._device))
                times_s[size] = min(times_s[size], time.perf_counter() - began_s)
        return times_s

    def capture(self, *, enforce_eager: bool, hurries: bool) -> None:
        """On CUDA, capture the graphs. `hurries`: the largest of each kind only; the others are left in `deferred`."""
        if not HAS_BINDINGS:
            log.warning("the package cuda-bindings is missing: frames of 2 to 64 streams take a third longer")
        if enforce_eager:
            log.warning("CUDA graphs are off (enforce_eager): every step launches its kernels one by one")
            return
        start.phase("tables")
        wait_until_filled()
        start.phase("kernels")
        began_s, free_before = time.monotonic(), free_bytes(self._device)
        pool = torch.cuda.graph_pool_handle()
        kinds = (self._mixed, self._decode, self._sample, self._begin)
        every = [(size, i) for i, kind in enumerate(kinds) for size in kind.sizes]
        first = [(size, i) for size, i in every if not hurries or size == kinds[i].sizes[-1]]
        for size, i in sorted(first, reverse=True):  # the largest first: smaller ones then fit into its memory
            kinds[i].capture(size, self._device, pool)
        left = sorted(set(every) - set(first), reverse=True)
        self.deferred = DeferredWork([partial(kinds[i].capture, size, self._device, pool) for size, i in left])
        torch.cuda.synchronize(self._device)
        start.phase("graphs")
        taken = (free_before - free_bytes(self._device)) / 2**20
        log.info("%d CUDA graphs in %.1f s, %d MiB, %d later", len(first), time.monotonic() - began_s, taken, len(left))

    def run_all(self, device: torch.device) -> None:
        """Run every kind of step on padding rows, with every number of rows, the smallest first."""
        kinds = (self._mixed, self._decode, self._sample, self._begin)
        for size, i in sorted((size, i) for i, kind in enumerate(kinds) for size in kind.sizes):
            kinds[i].run(size, device)

    # What the graphs hold. All padding rows have the padding slot; nothing reads what they write there.

    def _run_begin(self, columns: Tensor) -> Tensor:
        """Set slots up for new streams, see `slot_columns`."""
        state = self._slots
        first, later = state.talker.fields, state.predictor.fields
        begin_slots(columns, state.seed, state.penalty, first, later, state.seen, self._cache.table)
        return columns

    def _run_decode_rows(self, rows: Tensor) -> Tensor:
        """Step rows [slot, text id, position, watched position]: the slot's last frame and a text id go in."""
        slots, text_ids, positions, watched = rows.unbind(0)
        x = row_inputs(slots, text_ids, self._text_table, self._slots.last_frame)
        hidden = self._attended(x, slots, positions, watched, are_single=True)
        return self._hidden.index_copy_(0, slots, normed(hidden, self._norm))

    def _run_mixed_rows(self, rows: Tensor) -> Tensor:
        """Step rows [slot, text id, position, codec item, is decode row, slot for hidden state, watched position]."""
        slots, text_ids, positions, codec_items, is_decode, targets, watched = rows.unbind(0)
        prompts = PromptItems(is_decode, codec_items, self._codec_table, self._voice)
        x = row_inputs(slots, text_ids, self._text_table, self._slots.last_frame, prompts)
        hidden = self._attended(x, slots, positions, watched, are_single=False)
        return self._hidden.index_copy_(0, targets, normed(hidden, self._norm))

    def _run_sample(self, rows: Tensor) -> Tensor:
        """Draw frames [rows, codebooks] for rows [slot, frame index, end token allowed]; update the slots' state."""
        slots, frame_indices, may_end = rows.unbind(0)
        state = self._slots
        hidden = self._hidden[slots]
        codes = slots.new_empty(len(slots), self._num_codebooks)
        broken = torch.empty_like(slots, dtype=torch.bool)
        first_book = FirstBook(state.seen, state.penalty, state.banned, self._eos_id, may_end, broken)
        first_draws, draws = (_draws(slots, frame_indices, state.seed, p) for p in (state.talker, state.predictor))
        logits = linear(hidden, self._first_head)
        first = choose(logits, first_draws, codes, 0, table=self._predictor.first_inputs, first=first_book)

        def choose_later(book: int, logits: Tensor, table: Tensor | None) -> Tensor:
            done = self._late_flag if book == self._late_book else None
            return choose(logits, draws, codes, book, table=table, done=done)

        self._predictor(hidden, first, choose_later)
        return keep_frames(codes, broken, self._tables, self._table_starts, slots, state.last_frame, BROKEN)

    def _attended(self, x: Tensor, slots: Tensor, positions: Tensor, watched: Tensor, *, are_single: bool) -> Tensor:
        """Run x [rows, hidden] through all layers."""
        places = RowPositions(slots, positions, self._cache.table, self._cache.page_size, are_single)
        attend = partial(paged_attention, places=places)
        head = self._alignment_head
        if head is None:
            return self._stack(x, self._cache.storage, attend)[0]
        watch = WatchedLogits(head.head, watched, self._logits)
        return self._stack(x, self._cache.storage, attend, (head.layer, partial(attend, watch=watch)))[0]

    def _add_voices(self, rows: Sequence[PrefillRow]) -> bool:
        """Put the speaker embeddings and reference frames of prompt rows in `_voice`; False if there are none."""
        has_any, first = False, 0
        for row in rows:
            if row.x_vector is not None or row.reference_codes is not None:
                has_any |= self._add_voice(row, first)
            first += row.stop - row.start
        return has_any

    def _add_voice(self, row: PrefillRow, first: int) -> bool:
        """Put what a prompt's rows have of a voice in `_voice`, from row `first` on; False if that is nothing."""
        items = np.array(row.plan.codec_items[row.start : row.stop])
        has_any = False
        if row.x_vector is not None and (at := np.flatnonzero(items == X_VECTOR)).size:
            x_vector = upload(row.x_vector, self._device).to(self._voice.dtype)
            self._voice[upload(first + at, self._device)] = x_vector
            has_any = True
        if row.reference_codes is not None and (at := np.flatnonzero(items <= REFERENCE_FRAME)).size:
            codes = upload(row.reference_codes[REFERENCE_FRAME - items[at]].astype(np.int64), self._device)
            frames = sum_embeddings(codes, self._tables, self._table_starts)
            self._voice[upload(first + at, self._device)] = frames
            has_any = True
        return has_any


def _mixed_rows(prefills: Sequence[PrefillRow], decodes: DecodeRows, padding_slot: int) -> Int64Array:
    """Columns for `_run_mixed_rows`: the rows of the prompts, then decode rows. Only the hidden state of a prompt's
    last row is kept, others go to the padding slot."""
    num_prompt_rows = sum(row.stop - row.start for row in prefills)
    columns = np.empty((7, num_prompt_rows + len(decodes)), np.int64)
    columns[4:, :num_prompt_rows] = [[0], [padding_slot], [NOT_WATCHED]]
    first = 0
    for row in prefills:
        end = first + row.stop - row.start
        columns[0, first:end] = row.slot
        columns[1, first:end] = row.plan.text_ids[row.start : row.stop]
        columns[2, first:end] = range(row.start, row.stop)
        columns[3, first:end] = row.plan.codec_items[row.start : row.stop]
        if row.samples:
            columns[5, end - 1] = row.slot
        first = end
    if decodes:
        slots, text_ids, positions, _, _, watched = decodes.columns
        columns[:3, first:] = slots, text_ids, positions
        columns[3:5, first:] = [[NO_ID], [1]]
        columns[5:, first:] = slots, watched
    return columns


def _sampling_rows(prefills: Sequence[PrefillRow], decodes: DecodeRows) -> Int64Array:
    """Columns for `_run_sample`: the prompts that end, then decode rows."""
    firsts = [(row.slot, row.first_frame, row.allow_eos) for row in prefills if row.samples]
    columns = np.empty((3, len(firsts) + len(decodes)), np.int64)
    if firsts:
        columns[:, : len(firsts)] = np.array(firsts, np.int64).T
    if decodes:
        slots, _, _, frame_indices, allow_eos, _ = decodes.columns
        columns[:, len(firsts) :] = slots, frame_indices, allow_eos
    return columns


def _draws(slots: Tensor, frame_indices: Tensor, seed: Tensor, p: Sampling) -> Draws:
    return Draws(slots, frame_indices, seed, p.do_sample, p.temperature, p.top_k, p.top_p)
