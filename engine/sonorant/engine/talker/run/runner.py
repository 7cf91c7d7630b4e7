"""Runs the talker and the code predictor: one `step` takes pieces of prompts and decode rows, and returns frames.

Owns the weights, the KV pages and what is kept of each slot between steps: the last frame's embedding, the ids sampled
so far and the sampling parameters. Knows nothing of streams, text or credit: the scheduler decides which rows run.
"""

import time
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.checkpoint.fingerprint import fingerprint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.choice import rounding_of
from sonorant.engine.cpu.library import library
from sonorant.engine.cpu.model import fits
from sonorant.engine.cuda import compute_dtype, find_device
from sonorant.engine.model.alignment import AlignmentHead, find_alignment_head
from sonorant.engine.model.kept_weights import keep_note, kept_path, read_note
from sonorant.engine.model.memory import allowed_beside_weights
from sonorant.engine.model.talker import Talker
from sonorant.engine.talker.run.compiled import CompiledSteps
from sonorant.engine.talker.run.kv_cache import KVCache, fitting_num_pages, memory_budget_bytes
from sonorant.engine.talker.run.loading import load_rounded_talker, load_talker
from sonorant.engine.talker.run.plain import BlockingSteps, PlainSteps
from sonorant.engine.talker.run.slot_state import SlotArrays
from sonorant.engine.talker.run.speech_sample import whole_sample
from sonorant.engine.talker.schedule.rows import DecodeRow, DecodeRows, PrefillRow
from sonorant.engine.types import NO_ID, Float32Array, Int16Array, PassCounts, PromptPlan, SamplingParams
from sonorant.logs import start

if TYPE_CHECKING:  # Triton comes with the CUDA builds of torch only
    from sonorant.engine.talker.run.fused import FusedSteps

HEAD = "alignment_head"  # in the note beside kept weights
TIMED_STEPS, MOST_TIMED_ROWS = 2, 8  # on the CPU; a step of many rows takes so long that it is timed once


class TalkerRunner:
    """Runs steps of fused kernels and graphs on CUDA, of compiled functions on the CPU for small models and for rounded
    weights, of plain torch operations otherwise. For tests, `fused` chooses fused (True) or plain (False) steps
    on any device."""

    @torch.inference_mode()
    def __init__(
        self,
        checkpoint: Checkpoint,
        config: EngineConfig,
        *,
        fused: bool | None = None,
        finds_alignment: bool = False,
        alignment_head: AlignmentHead | None = None,
        hurries: bool = False,
    ) -> None:
        """`finds_alignment`: speak a sentence to find the alignment head, unless `alignment_head` gives it. `hurries`:
        on CUDA, leave what can wait to `do_deferred`."""
        self._pad_text_id, self._num_slots = checkpoint.text_ids.tts_pad, config.talker.num_slots
        device = find_device(config.talker.device)
        rounding = rounding_of(checkpoint, config)
        if rounding is None:
            dtype = compute_dtype(config.dtype, checkpoint.dtype, device)
            talker = load_talker(checkpoint, config, device, dtype)
        else:
            dtype = torch.float32
            talker = load_rounded_talker(checkpoint, config, rounding)
        if device.type == "cuda":
            torch.cuda.empty_cache()  # of the weights as they were read: Code2Wav and the streams need it
        start.phase("weights")
        budget_bytes = memory_budget_bytes(device, allowed_beside_weights(checkpoint, config))
        self.num_pages = fitting_num_pages(checkpoint, config, dtype, budget_bytes)
        self._cache = KVCache(checkpoint.talker.stack, config.talker, self.num_pages, device, dtype)
        self._slots = SlotArrays(config.talker.num_slots, checkpoint, device, dtype)
        parts = (talker, checkpoint, config, self._cache, self._slots)
        self.is_rounded = rounding is not None  # the C functions compute with many weights, and torch next to nothing
        is_compiled = self.is_rounded or (device.type == "cpu" and fits(checkpoint, dtype))
        functions = library() if fused is None and is_compiled else None
        simple: BlockingSteps = PlainSteps(*parts) if functions is None else CompiledSteps(functions, *parts)
        self._steps: BlockingSteps | FusedSteps = simple
        self._frames: Int16Array  # of the last step, if steps are not asynchronous
        self.alignment_head = alignment_head
        num_positions = min(config.talker.max_context, self.num_pages * config.talker.page_size)
        if finds_alignment:
            kept = None if rounding is None else kept_path(fingerprint(checkpoint, config), rounding.conversion)
            self.alignment_head = self._find_head(talker, checkpoint, config, num_positions, kept)
        simple.alignment_head = self.alignment_head
        start.phase("alignment head" if finds_alignment else "memory of streams")
        if device.type == "cuda" if fused is None else fused:
            self._steps = steps = _fused_steps()(*parts, self.alignment_head)
            if device.type == "cuda":
                steps.capture(enforce_eager=config.enforce_eager, hurries=hurries)
        self._warm_up(checkpoint.default_sampling)
        start.phase("first steps")

    @property
    def passes(self) -> PassCounts:
        return self._steps.passes

    @property
    def text_logits(self) -> Float32Array | None:
        """The alignment head's logits of the step started last, [decode rows that are watched, WINDOW]; None without
        such a head. Waits until they are known, which is before the step is over."""
        return self._steps.text_logits

    @torch.inference_mode()
    def assign(self, slot: int, pages: Sequence[int]) -> None:
        """Give a slot these pages, from position 0 on, in place of those it had."""
        self._cache.assign(slot, pages)

    @property
    def is_asynchronous(self) -> bool:
        """Whether a step that was started goes on while the host does something else, and a second one may be started
        behind it."""
        return not isinstance(self._steps, BlockingSteps)

    @torch.inference_mode()
    def start(self, prefills: Sequence[PrefillRow], decodes: Sequence[DecodeRow]) -> None:
        """Start a step. Prefills that reach the end of their prompt sample a frame, and so do all decodes."""
        if begun := [row for row in prefills if row.begins]:
            self._steps.begin(begun)
        rows = DecodeRows.of(decodes)
        if isinstance(self._steps, BlockingSteps):
            self._frames = self._steps.step(prefills, rows)
        else:
            self._steps.start(prefills, rows)

    @torch.inference_mode()
    def finish(self) -> Int16Array:
        """Wait for the step started first, and return its frames [rows that sample, codebooks], prefills first.

        The first code is BROKEN in a row whose scores are not finite.
        """
        if isinstance(self._steps, BlockingSteps):
            return self._frames
        return self._steps.finish()

    def wait_until_nearly_over(self) -> None:
        """Wait until there is just enough time left to decide the next step before the one started last is over."""
        if not isinstance(self._steps, BlockingSteps):
            self._steps.wait_until_nearly_over()

    def step(self, prefills: Sequence[PrefillRow], decodes: Sequence[DecodeRow]) -> Int16Array:
        """Start a step and finish it."""
        self.start(prefills, decodes)
        return self.finish()

    @torch.inference_mode()
    def do_deferred(self) -> float | None:
        """Between two steps: do a piece of what was left for later, if one is due. Return in how many seconds the next
        one is; None: nothing is left."""
        return None if isinstance(self._steps, BlockingSteps) else self._steps.deferred.turn()

    @torch.inference_mode()
    def step_times(self) -> dict[int, float]:
        """Measure the seconds that a frame takes, by rows. Call it only while there are no streams.

        On the CPU it is processor time, shared by the threads: what other programs do at the moment does not count.
        Only where weights are rounded more than one row is tried: few rows of small models take no time to speak of."""
        if not isinstance(self._steps, BlockingSteps):
            return self._steps.step_times()
        counts = [1, min(MOST_TIMED_ROWS, self._num_slots)] if self.is_rounded else [1]
        for slot in range(max(counts)):
            self.assign(slot, (0,))
        return {count: self._processor_s(count) / torch.get_num_threads() for count in counts}

    def _processor_s(self, count: int) -> float:
        rows = [DecodeRow(slot, self._pad_text_id, position=1, frame_index=1, allow_eos=False) for slot in range(count)]
        times_s = []
        for _ in range(TIMED_STEPS if count == 1 else 1):
            began_s = time.process_time()
            self.step([], rows)
            times_s.append(time.process_time() - began_s)
        return min(times_s)

    def _find_head(
        self, talker: Talker, checkpoint: Checkpoint, config: EngineConfig, num_positions: int, kept: Path | None
    ) -> AlignmentHead | None:
        """Find the alignment head. With `kept`, where the weights are kept, that is done once: on a CPU it takes longer
        than the rest of a start."""
        if kept is not None and HEAD in (note := read_note(kept)):
            return note[HEAD] and AlignmentHead(*note[HEAD])
        sample = whole_sample(self.step, checkpoint, config, num_positions)
        if sample is None:
            return None
        prompt, codes = sample
        head = find_alignment_head(talker, checkpoint, prompt, codes.astype(np.int64))
        if kept is not None:
            keep_note(kept, {HEAD: head and astuple(head)})
        return head

    def _warm_up(self, sampling: SamplingParams) -> None:
        """Make a frame with each kind of step, so that the first stream need not wait for libraries and allocators."""
        plan = PromptPlan((self._pad_text_id,), (NO_ID,), trailing=(), text_ended=True, num_text_tokens=1)
        prompt = PrefillRow(0, (0,), plan, 0, 1, sampling, x_vector=None, reference_codes=None, allow_eos=False)
        self.step([prompt], [])
        self.step([], [DecodeRow(0, self._pad_text_id, position=1, frame_index=1, allow_eos=False)])


def _fused_steps() -> "type[FusedSteps]":
    from sonorant.engine.talker.run.fused import FusedSteps

    return FusedSteps
