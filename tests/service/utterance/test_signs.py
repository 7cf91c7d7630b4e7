"""Silence and repetition are counted the same however frames are cut into chunks, and nothing else is either."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.talker.schedule.runaway import Repetition
from sonorant.service.utterance.signs import BAD_OVER, BAD_SAID, MAX_PERIOD, SUSPECT_SAID, TAIL_FRAMES, Signs

FRAME = 4  # samples


def frames(firsts: list[int], is_silent: list[bool]) -> tuple[np.ndarray, np.ndarray]:
    codes = np.array([[first, 0] for first in firsts], np.int16).reshape(-1, 2)
    samples = np.repeat([0 if silent else 1000 for silent in is_silent], FRAME).astype(np.int16)
    return codes, samples


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=160), st.data())
def test_counts_do_not_depend_on_the_cutting(made: list[tuple[int, bool]], data: st.DataObject) -> None:
    codes, samples = frames([first for first, _ in made], [silent for _, silent in made])
    signs, at = Signs(), 0
    while at < len(made):
        size = data.draw(st.integers(1, 12))
        signs.push(codes[at : at + size], samples[at * FRAME : (at + size) * FRAME])
        at += size
    num_silent = 0
    for _, silent in made:
        num_silent = num_silent + 1 if silent else 0
    repetition = [0] * MAX_PERIOD
    for k in range(len(made)):
        repetition = [
            run + 1 if k >= period and made[k][0] == made[k - period][0] else 0
            for period, run in enumerate(repetition, 1)
        ]
    assert (signs.num_silent, signs.num_repeated) == (num_silent, max(repetition))


@pytest.mark.parametrize("period", [1, 5, MAX_PERIOD])
def test_a_loop_is_counted_as_the_talker_counts_it(period: int) -> None:
    codes, samples = frames([k % period for k in range(200)], [False] * 200)
    signs, repetition = Signs(), Repetition()
    for start in range(0, 200, 12):
        signs.push(codes[start : start + 12], samples[start * FRAME : (start + 12) * FRAME])
    for code in codes[:, 0].tolist():
        longest = repetition.add(code)
    assert signs.num_repeated == longest == 200 - period


@given(st.lists(st.booleans(), max_size=2 * BAD_SAID), st.integers(0, 40), st.data())
def test_when_it_is_over_does_not_depend_on_the_cutting(silent: list[bool], said_at: int, data: st.DataObject) -> None:
    codes, samples = frames(list(range(len(silent))), silent)
    signs, at = Signs(), 0
    while at < len(silent):
        size = data.draw(st.integers(1, 12))
        end = min(at + size, len(silent))
        signs.push(codes[at:end], samples[at * FRAME : end * FRAME], said_at if said_at < end else None)
        at = end
    tails = [k for k in range(said_at + TAIL_FRAMES, len(silent) + 1) if all(silent[k - TAIL_FRAMES : k])]
    if tails:
        assert (signs.over_at, signs.missed_end) == (tails[0], len(silent) - tails[0] >= BAD_OVER)
    else:
        over_at = said_at + SUSPECT_SAID
        assert signs.over_at == (over_at if over_at < len(silent) else None)
        assert signs.missed_end == (len(silent) - said_at >= BAD_SAID)


def test_a_pause_before_the_last_word_is_no_end() -> None:
    codes, samples = frames(list(range(60)), [10 <= k < 40 for k in range(60)])
    signs = Signs()
    signs.push(codes[:45], samples[: 45 * FRAME])
    signs.push(codes[45:], samples[45 * FRAME :], 42)
    assert (signs.over_at, signs.missed_end) == (None, False)
