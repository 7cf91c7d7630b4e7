"""A model that loses its text, stands still in it and leaps: marks are spread out, and what it passed over is named."""

import itertools
import math

import numpy as np
import pytest

from sonorant.service.utterance.signs import STANDING, Signs
from sonorant.service.utterance.word_times import REPORT_MS, STANDSTILL_MS, TimedWord, WordTimes, skipped
from tests.service.fake_speech import as_written

RATE = 24_000
FRAME_MS = 80
SOUND = np.full(RATE * FRAME_MS // 1000, 8000, np.int16)
TEXT = "one two three four five six seven eight nine ten eleven twelve "
UNIT_MS = 60


class Reports:
    """What an engine tells that speaks three words, stands still, and has said all words at once at the end."""

    def __init__(self, leaps_at_ms: float) -> None:
        self.leaps_at_ms = leaps_at_ms
        self.now_ms = 0.0

    def reached_ms(self, char: int) -> float | None:
        if char <= TEXT.index("three"):
            begins_ms = char * UNIT_MS * 1.0
        else:  # all the others within one frame
            begins_ms = self.leaps_at_ms + FRAME_MS * char / len(TEXT)
        return begins_ms if begins_ms <= self.now_ms else None


def marks(num_frames: int, leaps_at_ms: float) -> list[TimedWord]:
    times, reports = WordTimes(RATE, 1.0, as_written(), ms_per_unit=UNIT_MS), Reports(leaps_at_ms)
    times.follow(reports.reached_ms)
    times.push_text(TEXT)
    times.end_text()
    words = []
    for number in range(1, num_frames + 1):
        reports.now_ms = number * FRAME_MS
        times.push_audio(SOUND)
        words += times.take_due(number * FRAME_MS)
    times.end_audio()
    return words + times.take_due(num_frames * FRAME_MS)


@pytest.mark.parametrize("leaps_at_ms", [1500, 2500, 5000, 20_000, 29_900])
def test_marks_do_not_pile_up(leaps_at_ms: float) -> None:
    """Before, nine of them came within one frame, several at the same millisecond."""
    words = marks(375, leaps_at_ms)
    assert [word.text for word in words] == TEXT.split()
    assert all(later.start_ms - word.start_ms >= 40 for word, later in itertools.pairwise(words))
    assert all(word.start_ms < word.end_ms <= later.start_ms for word, later in itertools.pairwise(words))
    assert [word.estimated for word in words[:3]] == [False] * 3
    assert sum(word.estimated for word in words) >= 5
    reports = Reports(leaps_at_ms)
    reports.now_ms = math.inf
    for word in words:
        late_ms = word.start_ms - (reports.reached_ms(word.start) or 0.0)
        assert word.estimated == (not -1 <= late_ms <= REPORT_MS + 1), (word, late_ms)


def test_words_are_estimated_while_the_model_stands_still() -> None:
    words = marks(375, 29_900)
    first = next(word for word in words if word.estimated)
    last_followed_ms = words[2].start_ms
    assert STANDSTILL_MS < first.start_ms - last_followed_ms < STANDSTILL_MS + 1000
    assert words[-1].start_ms < 12_000, "at the usual rate, not at the end"


def test_words_left_at_the_end_begin_one_after_another() -> None:
    words = marks(40, 3150)
    assert [word.text for word in words] == TEXT.split()
    assert all(word.start_ms < later.start_ms for word, later in itertools.pairwise(words))


@pytest.mark.parametrize("size", [1, 7])
def test_standing_still_counts_frames_with_sound_at_one_place(size: int) -> None:
    signs, moved_at = Signs(), 0
    for start in range(0, 140, size):
        count = min(size, 140 - start)
        moved_at = 35 if start >= 35 else start
        is_loud = [frame % 2 == 0 for frame in range(start, start + count)]
        samples = np.repeat([1000 * loud for loud in is_loud], 4).astype(np.int16)
        codes = np.arange(start, start + count, dtype=np.int16)[:, None].repeat(2, 1)
        signs.push(codes, samples, None, moved_at)
    assert signs.num_standing == len(range(36, 140, 2)) < STANDING
    signs.push(codes, samples, 139, None)
    assert signs.num_standing == 0, "all is said"


def said(*times: tuple[str, float | None]) -> list[str]:
    """Return what was skipped of words, each with when it begins."""
    begins, text = dict[int, float | None](), ""
    for word, begins_ms in times:
        begins[len(text)] = begins_ms
        text += f"{word} "
    return skipped(text, begins.__getitem__, lambda word: "\u0627" not in word)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([("They", 0), ("left", 250), ("yesterday.", 500)], []),
        ([("They", 0), ("left", 250), ("yesterday.", None)], ["yesterday."]),
        ([("They", 0), ("left", None), ("early", None)], ["left", "early"]),
        ([("They", None)], ["They"]),
        ([("So", 0), ("Edinburgh,", 200), ("Emma,", 230), ("how", 900)], ["Edinburgh,"]),
        ([("So", 0), ("how", 200), ("are", 220), ("you", 240), ("all", 260), ("now", 1100)], ["how", "are", "you"]),
        ([("I", 0), ("am", 10), ("a", 20), ("b", 30), ("c", 40), ("well", 300)], []),  # letters are quick to say
        ([("one", 0), ("two", 300), ("\u0627" * 20, 400), ("three", 401)], []),  # nothing is given of it
        ([("\u0627", None), ("!", None), ("so", 0)], []),
        ([("So", 0), ("1,000,000,000,000,000", 200), ("is", 800), ("much.", 1100)], []),  # one quadrillion
        ([], []),
    ],
)
def test_what_was_passed_over_is_named(times: list[tuple[str, float | None]], words: list[str]) -> None:
    assert said(*times) == words
