"""Drives a TalkerRunner as the scheduler would: some utterances, admitted when and where the test says."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.rows import DecodeRow, PrefillRow
from sonorant.engine.types import Float32Array, Int16Array, PromptPlan, SamplingParams, SynthesisParams

PAGE_SIZE = 16


@dataclass(frozen=True)
class Utterance:
    plan: PromptPlan
    sampling: SamplingParams
    num_frames: int
    x_vector: Float32Array | None = None
    reference_codes: Int16Array | None = None


@dataclass
class Admission:
    """When and where an utterance runs: `pages` are its KV pages in order, `chunk_rows` prompt rows go in per step."""

    utterance: Utterance
    slot: int
    pages: tuple[int, ...]
    first_step: int = 0
    chunk_rows: int = 512
    grows: bool = False  # it begins with pages for its prompt, and is given the others one by one
    rows_done: int = 0
    num_pages: int = 0  # that it has been given
    codes: list[Int16Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_pages = -(-self.utterance.plan.num_rows // PAGE_SIZE) if self.grows else len(self.pages)

    @property
    def given(self) -> tuple[int, ...]:
        return self.pages[: self.num_pages]

    @property
    def lacks_a_page(self) -> bool:
        return self.utterance.plan.num_rows + len(self.codes) > self.num_pages * PAGE_SIZE

    @property
    def is_done(self) -> bool:
        return len(self.codes) == self.utterance.num_frames


def prepare(checkpoint: Checkpoint, text: str, sampling: SamplingParams, num_frames: int, **params: Any) -> Utterance:
    """An utterance of `text` with the given keyword arguments of SynthesisParams."""
    tokenizer = Tokenizer.load(checkpoint.folder)
    synthesis = SynthesisParams(sampling=sampling, **params)
    plan = PromptLayout(synthesis, checkpoint, tokenizer).plan(tokenizer.encode(text), ended=True)
    assert plan is not None
    return Utterance(plan, sampling, num_frames, synthesis.x_vector, synthesis.reference_codes)


def run(
    runner: TalkerRunner, checkpoint: Checkpoint, admissions: Sequence[Admission], *, decodes_reversed: bool = False
) -> list[Int16Array]:
    """All utterances to their end, whatever the model says in between; codes [frames, codebooks] of each."""
    step = 0
    while not all(a.is_done for a in admissions):
        live = [a for a in admissions if a.first_step <= step and not a.is_done]
        prefilling = [a for a in live if a.rows_done < a.utterance.plan.num_rows]
        decoding = [a for a in live if a not in prefilling]
        if decodes_reversed:
            decoding.reverse()
        prefills = [_prefill_row(a) for a in prefilling]
        for a in decoding:
            if a.lacks_a_page:
                a.num_pages += 1
                runner.assign(a.slot, a.given)
        if live:
            codes = runner.step(prefills, [_decode_row(a, checkpoint) for a in decoding])
            sampled = [a for a, row in zip(prefilling, prefills, strict=True) if row.samples] + decoding
            for admission, row in zip(sampled, codes, strict=True):
                admission.codes.append(row)
        step += 1
    return [np.stack(a.codes) for a in admissions]


def run_alone(runner: TalkerRunner, checkpoint: Checkpoint, utterance: Utterance, num_pages: int = 8) -> Int16Array:
    return run(runner, checkpoint, [Admission(utterance, 0, tuple(range(num_pages)))])[0]


def _prefill_row(a: Admission) -> PrefillRow:
    u = a.utterance
    start, a.rows_done = a.rows_done, min(a.rows_done + a.chunk_rows, u.plan.num_rows)
    return PrefillRow(
        a.slot, a.given, u.plan, start, a.rows_done, u.sampling, u.x_vector, u.reference_codes, _allows_eos(u, 0)
    )


def _decode_row(a: Admission, checkpoint: Checkpoint) -> DecodeRow:
    plan, frame = a.utterance.plan, len(a.codes)
    text_id = plan.trailing[frame - 1] if frame <= len(plan.trailing) else checkpoint.text_ids.tts_pad
    return DecodeRow(a.slot, text_id, plan.num_rows + frame - 1, frame, _allows_eos(a.utterance, frame))


def _allows_eos(u: Utterance, frame: int) -> bool:
    return frame >= u.sampling.min_frames and not u.sampling.ignore_eos
