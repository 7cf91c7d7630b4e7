"""Speech alone, without engine, clock or event loop: whatever happens, each frame is given out once and in order."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine import FinishReason, PcmChunk, StreamEnd
from sonorant.service.pacing.pacer import Playout
from sonorant.service.text.segmenter import EndSegment, Text
from sonorant.service.utterance.segments import Segments
from sonorant.service.utterance.speech import TRANSITIONS, Speech, State
from sonorant.service.utterance.statistics import Statistics
from sonorant.service.utterance.word_times import WordTimes
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAME_SAMPLES, NUM_CODEBOOKS, as_written
from tests.service.utterance._support import NO_PHRASES, spec

SAMPLES = FRAME_SAMPLES
COMPLETED, RUNAWAY, UNAVAILABLE = FinishReason.COMPLETED, FinishReason.RUNAWAY, FinishReason.UNAVAILABLE
ACTS = ["take", "take silence", "take said", "revise", "give", "runaway", "die"]


class Driven:
    """Speech with one segment, whose stream exists only here."""

    def __init__(self) -> None:
        made, times = spec(FakeEngine()), WordTimes(24_000, 1.0, as_written())
        self.segments = Segments(made, None, NO_PHRASES)  # type: ignore[arg-type]  # nothing is opened
        self.speech = Speech(made, self.segments, times, Statistics("u", made, times, Playout()), None, whole=False)
        self.stream: Any = None  # the one that would be open
        self.heard: list[int] = []  # the numbers of the frames that were given out
        self.segment = self.segments.current
        self.write()
        self.speech.begin(self.segment)

    def write(self) -> None:
        self.segments.apply(Text("Some words.", "Some words."))
        self.segment.close(EndSegment(last=True))

    def do(self, act: str, count: int) -> None:
        speech, state = self.speech, self.speech.state
        if act == "revise" and state is not State.GIVEN:
            speech.revise(self.segment, ["Other words."])
            assert speech.state in (State.SET_BACK, State.WAITING), "or the new text would never be spoken"
            self.segment.detach()
            self.segment.empty()
            self.write()
        elif speech.needs_stream:
            self.said_at: int | None = None
            self.stream = SimpleNamespace(how_far=lambda: (self.said_at, None), frames_in_common=lambda _: count)
            self.segment.stream = self.stream
            speech.opened()
        elif state in (State.SET_BACK, State.ENDING):
            speech.take([StreamEnd(FinishReason.CANCELLED, 0, 0.0, 0.0)])
        elif act == "give":
            self.give(count)
        elif state is State.SPEAKING:
            self.take(act, count)

    def take(self, act: str, count: int) -> None:
        if act == "take said":
            self.said_at = self.speech.frames.num_frames
        reason = {"runaway": RUNAWAY, "die": UNAVAILABLE}.get(act)
        self.speech.take([self.frames(count, silent=act == "take silence") if reason is None else end(reason)])

    def frames(self, count: int, *, silent: bool) -> PcmChunk:
        numbers = np.arange(count) + self.speech.frames.num_frames
        samples = np.full(count * SAMPLES, 0 if silent else 5000, np.int16)
        return PcmChunk(int(numbers[0]), count, samples, np.repeat(numbers[:, None], NUM_CODEBOOKS, 1).astype(np.int16))

    def give(self, count: int) -> None:
        due = min(count, self.speech.num_due)
        if due:
            codes, samples = self.speech.frames.give(due)
            assert len(samples) == due * SAMPLES
            self.heard += codes[:, 0].tolist()
        if self.speech.state is State.OVER and not self.speech.frames.num_waiting:
            self.speech.gave_all()


def end(reason: FinishReason) -> StreamEnd:
    return StreamEnd(reason, 0, 0.0, 0.0)


@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(1, 40)), max_size=40))
def test_whatever_happens_each_frame_is_given_out_once(acts: list[tuple[str, int]]) -> None:
    driven = Driven()
    speech = driven.speech
    for act, count in acts:
        driven.do(act, count)
        assert 0 <= speech.num_due <= speech.frames.num_waiting
        assert driven.heard == list(range(speech.frames.num_given))
        assert speech.statistics.num_frames == speech.frames.num_frames
        assert speech.statistics.received_samples == speech.frames.num_frames * SAMPLES
    for _ in range(4):  # it comes to its end from wherever it is
        if speech.state is State.SPEAKING:
            speech.take([end(COMPLETED)])
        driven.do("", 1)
    driven.give(speech.frames.num_frames)
    assert speech.state is State.GIVEN
    assert driven.heard == list(range(speech.frames.num_frames))


def test_a_missed_end_that_is_revised_meanwhile_is_spoken_anew() -> None:
    driven = Driven()
    for act, state in [
        ("open", State.SPEAKING),
        ("take said", State.SPEAKING),
        ("take silence", State.ENDING),
        ("revise", State.SET_BACK),
        ("stop", State.WAITING),
        ("open", State.SPEAKING),
    ]:
        driven.do(act, 20)
        assert driven.speech.state is state, act


def test_what_is_not_in_the_table_is_a_bug() -> None:
    assert set(TRANSITIONS) == set(State)
    driven = Driven()
    with pytest.raises(RuntimeError, match="cannot go from WAITING to GIVEN"):
        driven.speech.gave_all()
    driven.do("", 1)
    with pytest.raises(RuntimeError, match="cannot go from SPEAKING to SPEAKING"):
        driven.speech.opened()
