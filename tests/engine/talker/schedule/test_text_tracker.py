"""Paths through texts: looked for in what a head says of each frame, found whatever else it says."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.talker.schedule.text_tracker import BEHIND, WINDOW, TextTracker

Logits = npt.NDArray[np.float32]


def looks(tokens: list[int], num_tokens: int, seed: int, lost: float = 0.0) -> Logits:
    """[frames, tokens] of a head that looks at these, unsteadily; now and then it is lost."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1, (len(tokens), num_tokens)).astype(np.float32)
    for frame, token in enumerate(tokens):
        if rng.random() >= lost:
            logits[frame, token] += 8
    return logits


def tracked(tracker: TextTracker, slot: int, logits: Logits) -> list[float]:
    (positions,) = tracked_together(tracker, [slot], [logits])
    return list(positions)


def tracked_together(tracker: TextTracker, slots: list[int], logits: list[Logits]) -> list[tuple[float, ...]]:
    """Of each slot, whose logits are of equally many frames."""
    positions = []
    for frames in zip(*logits, strict=True):
        windows = np.full((len(slots), WINDOW), 99, np.float32)  # what is there no more, or not yet, may be anything
        for window, frame, first in zip(windows, frames, tracker.windows(slots), strict=True):
            part = frame[first : first + WINDOW]
            window[: len(part)] = part
        tracker.advance(slots, [len(frame) for frame in frames], windows)
        positions.append(tracker.positions(slots).tolist())
    return list(zip(*positions, strict=True))


def path(steps: list[int]) -> list[int]:
    return list(itertools.accumulate(steps))


steps = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2]), min_size=1, max_size=120)


@settings(max_examples=60)
@given(steps, st.integers(0, 99))
def test_it_follows_the_speech_and_never_goes_back(advances: list[int], seed: int) -> None:
    tokens = path(advances)
    tracker = TextTracker(1)
    tracker.begin(0)
    positions = tracked(tracker, 0, looks(tokens, max(tokens) + 1, seed))
    assert positions == sorted(positions)
    np.testing.assert_allclose(positions, np.array(tokens) + 0.5, atol=0.6)


def test_frames_in_which_the_head_is_lost_do_not_lead_astray() -> None:
    """Now and then it stays behind for a while, as nothing tells it more; at the end it is always right again."""
    tokens = [token for token in range(40) for _ in range(4)]
    tracker, slots = TextTracker(200), list(range(200))
    for slot in slots:
        tracker.begin(slot)
    positions = tracked_together(tracker, slots, [looks(tokens, 40, seed, lost=0.1) for seed in slots])
    errors = np.abs(np.array(positions) - np.array(tokens) - 0.5)
    medians = np.median(errors, axis=1)
    assert np.mean(medians < 0.2) > 0.97 and np.max(medians) < 1
    assert np.max(errors[:, -1]) < 2


def test_between_two_tokens_it_is_where_the_head_looks_on_average() -> None:
    tracker = TextTracker(1)
    tracker.begin(0)
    logits = np.full((2, 2), -30, np.float32)
    logits[0, 0] = 0
    logits[1] = np.log([0.25, 0.75])
    assert tracked(tracker, 0, logits) == pytest.approx([0.5, 1.25])


def test_tokens_that_are_not_there_yet_are_not_looked_at() -> None:
    tracker = TextTracker(1)
    tracker.begin(0)
    window = np.zeros((1, WINDOW), np.float32)
    window[0, 1] = 50
    tracker.advance([0], [1], window)
    assert tracker.positions([0]) == [0.5]
    tracker.advance([0], [2], window)
    assert tracker.positions([0]) == [1.5]


@given(steps, st.integers(0, 200), st.integers(0, 99))
@settings(max_examples=40)
def test_a_stream_that_goes_on_does_so_where_it_was(advances: list[int], start: int, seed: int) -> None:
    tokens = [start + token for token in path(advances)]
    tracker = TextTracker(3)
    tracker.begin(2, start + 0.5)
    assert tracker.windows([2]) == [max(0, start - BEHIND)]
    positions = tracked(tracker, 2, looks(tokens, max(tokens) + 1, seed))
    np.testing.assert_allclose(positions, np.array(tokens) + 0.5, atol=0.6)


def test_neighbours_and_streams_that_were_there_before_make_no_difference() -> None:
    logits = [looks(path([0, 1] * 30), 32, seed) for seed in (1, 2)]
    alone = []
    for each in logits:
        tracker = TextTracker(1)
        tracker.begin(0)
        alone.append(tracked(tracker, 0, each))
    tracker = TextTracker(2)
    tracker.begin(0)
    tracked(tracker, 0, logits[1])
    for slot in (1, 0):
        tracker.begin(slot)
    together: list[list[float]] = [[], []]
    for frame in range(60):
        windows = np.zeros((2, WINDOW), np.float32)
        for row, first in enumerate(tracker.windows([1, 0])):
            part = logits[row][frame, first : first + WINDOW]
            windows[row, : len(part)] = part
        tracker.advance([1, 0], [32, 32], windows)
        for row, position in enumerate(tracker.positions([1, 0]).tolist()):
            together[row].append(position)
    assert together == alone
