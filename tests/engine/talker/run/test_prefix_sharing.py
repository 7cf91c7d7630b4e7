"""Streams of one cloned voice share the pages of what their prompts begin with, and say what each says alone."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import CancelStream, FrameBatch, OpenStream
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.types import Int16Array
from tests.engine.talker.driver import Utterance, prepare, run_alone
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint

NUM_FRAMES = 4
REFERENCE_TEXT = "The quick brown fox jumps over the lazy dog and speaks slowly."
TEXTS = ("Hello world.", "Today is fine.")
NUM_KINDS = 12  # two voices, with and without reference frames, both layouts or texts


class Setup:
    """A runner, utterances of three layouts, two texts and two voices, and the codes of each alone."""

    def __init__(self, model: Path, device: str) -> None:
        self.checkpoint = load_checkpoint(model)
        self.config = EngineConfig.of(
            model, talker_device=device, dtype="float32", num_slots=3, num_pages=24, max_context=128
        )
        self.runner = TalkerRunner(self.checkpoint, self.config)
        self.kinds = list(_kinds(self.checkpoint))
        self.alone = [run_alone(self.runner, self.checkpoint, kind) for kind in self.kinds]


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def setup(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Setup:
    return Setup(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), "base", **QUICK), request.param)


def _kinds(checkpoint: Checkpoint) -> Iterator[Utterance]:
    sampling = dataclasses.replace(checkpoint.default_sampling, max_frames=NUM_FRAMES, ignore_eos=True, seed=3)
    rng = np.random.default_rng(0)
    for _ in range(2):
        params: dict[str, Any] = {"x_vector": rng.standard_normal(checkpoint.talker.stack.hidden_size, np.float32)}
        codes = rng.integers(0, 64, (40, checkpoint.talker.num_codebooks), np.int16)
        reference = {"reference_codes": codes, "reference_text": REFERENCE_TEXT}
        for text in TEXTS:
            yield prepare(checkpoint, text, sampling, NUM_FRAMES, **params, non_streaming_mode=True)
            for whole in (False, True):
                extra = {**params, **reference, "non_streaming_mode": whole}
                yield prepare(checkpoint, text, sampling, NUM_FRAMES, **extra)


class Talker:
    def __init__(self, setup: Setup, **changes: Any) -> None:
        config = setup.config.but(**changes)
        self._scheduler = Scheduler(config, setup.checkpoint, setup.runner.num_pages)
        self._runner = setup.runner
        self.codes: dict[int, list[Int16Array]] = {}
        self.num_shared_rows: dict[int, int] = {}  # of the streams that began, by slot, the last one's

    def open(self, stream_id: int, kind: Utterance) -> None:
        voice = kind.x_vector, kind.reference_codes
        self._scheduler.on_record(OpenStream(stream_id, kind.plan, kind.sampling, NUM_FRAMES, 0.0, *voice))
        self.codes[stream_id] = []

    def cancel(self, stream_id: int) -> None:
        self._scheduler.on_record(CancelStream(stream_id))

    def step(self) -> bool:
        plan = self._scheduler.next_step()
        self.num_shared_rows.update((row.slot, row.num_shared_rows) for row in plan.prefills if row.begins)
        if plan.has_rows:
            for record in self._scheduler.apply(plan, self._runner.step(plan.prefills, plan.decodes)):
                if isinstance(record, FrameBatch):
                    for stream_id, codes in zip(record.stream_ids.tolist(), record.codes, strict=True):
                        self.codes[stream_id].append(codes)
        self._scheduler.check_conservation()
        return plan.has_rows

    def finish(self) -> None:
        while self.step():
            pass


def num_common_rows(one: Utterance, other: Utterance) -> int:
    """Of prompts in the same voice."""
    rows = [list(zip(each.plan.text_ids, each.plan.codec_items, strict=True)) for each in (one, other)]
    return next(n for n, pair in enumerate(zip(*rows, strict=False)) if len(set(pair)) > 1)


@pytest.mark.parametrize(("kind", "num_shared_rows"), [(0, 0), (1, 32), (2, 32)])
def test_the_second_utterance_of_a_voice_begins_behind_what_it_shares(
    setup: Setup, kind: int, num_shared_rows: int
) -> None:
    kinds, page_size = setup.kinds, setup.config.talker.page_size
    assert num_common_rows(kinds[kind], kinds[kind + 3]) // page_size * page_size == num_shared_rows
    talker = Talker(setup)
    for stream_id, each in ((1, kind), (2, kind + 3), (3, kind + 6)):  # the same voice, another text; another voice
        talker.open(stream_id, kinds[each])
        talker.finish()
        np.testing.assert_array_equal(talker.codes[stream_id], setup.alone[each])
        assert talker.num_shared_rows.popitem()[1] == (num_shared_rows if stream_id == 2 else 0)


@settings(max_examples=20)
@given(
    opens=st.lists(st.tuples(st.integers(0, NUM_KINDS - 1), st.integers(0, 3), st.booleans()), min_size=4, max_size=12),
    max_prefill_rows=st.sampled_from([7, 40, 512]),
)
def test_any_schedule_of_shared_voices_gives_the_codes_of_each_alone(
    setup: Setup, opens: list[tuple[int, int, bool]], max_prefill_rows: int
) -> None:
    """Each stream opens some steps after the one before it, and some are cancelled another step later."""
    talker = Talker(setup, max_prefill_rows=max_prefill_rows)
    for stream_id, (kind, num_steps, is_cancelled) in enumerate(opens):
        for _ in range(num_steps):
            talker.step()
        talker.open(stream_id, setup.kinds[kind])
        if is_cancelled:
            talker.step()
            talker.cancel(stream_id)
    talker.finish()
    for stream_id, (kind, _, is_cancelled) in enumerate(opens):
        codes = [frame.tolist() for frame in talker.codes[stream_id]]
        assert is_cancelled or len(codes) == NUM_FRAMES
        assert codes == setup.alone[kind][: len(codes)].tolist()
