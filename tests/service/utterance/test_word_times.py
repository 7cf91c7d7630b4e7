import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.service.utterance.word_times import TimedWord, WordTimes
from tests.service.fake_speech import as_written

RATE = 24_000
PIECES = ("a", "bc", "def ", " ", ", ", "!", "你", "4 ")
LOUD = np.full(RATE // 10, 8000, np.int16)  # 100 ms
SILENCE = np.zeros(RATE // 10, np.int16)


def test_words_are_told_before_they_are_heard_and_once() -> None:
    times = WordTimes(RATE, 1.0, as_written(), ms_per_unit=50)
    times.push_text("One two, thr")
    times.push_audio(LOUD)
    assert times.take_due(100) == [TimedWord("One", 0, 3, 0, 200)]
    assert times.take_due(100) == []
    assert times.take_due(210) == [TimedWord("two,", 4, 8, 200, 600)]
    times.push_text("ee")
    assert times.take_due(610) == [], "it may go on"


def test_words_that_a_revision_changes_are_told_again_and_those_before_are_not() -> None:
    times = WordTimes(RATE, 1.0, as_written(), ms_per_unit=50)
    times.push_text("One two, three ")
    times.push_audio(LOUD)
    assert [word.text for word in times.take_due(210)] == ["One", "two,"]
    times.revise_text(0, len("One two,"))
    times.push_text("One two, six ")
    assert times.take_due(220) == []
    times.revise_text(0, len("One t"))
    times.push_text("One ten, six ")
    (word,) = times.take_due(250)
    assert (word.text, word.start, word.end, word.start_ms) == ("ten,", 4, 8, 220)


def test_a_word_that_is_in_another_segment_after_a_revision_is_told_once() -> None:
    times = WordTimes(RATE, 1.0, as_written(), ms_per_unit=50)
    times.push_text("3.Hello one ")
    times.push_audio(LOUD)
    assert [word.text for word in times.take_due(100)] == ["3.Hello"]
    times.revise_text(0, len("3.Hello one "))
    times.push_text("3.")
    times.end_text()
    times.push_text("Hello one two ")
    times.end_audio()
    times.push_audio(LOUD)
    assert [word.text for word in times.take_due(2000)] == ["one", "two"]


def test_silence_before_the_first_word_is_measured() -> None:
    times = WordTimes(RATE, 1.0, as_written(), ms_per_unit=50)
    times.push_text("One two ")
    times.push_audio(SILENCE)
    assert times.take_due(100) == []
    times.push_audio(np.concatenate([SILENCE, LOUD]))
    (word,) = times.take_due(300)
    assert word.start_ms == 200


def test_with_the_end_known_the_rest_is_spread_over_what_is_left() -> None:
    times = WordTimes(RATE, 1.0, as_written(), ms_per_unit=500)
    times.push_text("aa aa aa aa")
    times.end_text()
    times.push_audio(np.tile(LOUD, 20))
    times.end_audio()
    words = times.take_due(2000)
    assert [word.start_ms for word in words] == [0, 450, 900, 1350]
    assert words[-1].end_ms == 1800
    assert times.ms_per_unit == 500, "too short to learn from"


def test_the_rate_of_a_segment_is_that_of_the_next() -> None:
    times = WordTimes(RATE, 1.0, as_written())
    times.push_text("a" * 29)
    times.end_text()
    times.push_text("bb bb ")
    times.push_audio(np.tile(LOUD, 32))
    times.end_audio()
    assert times.ms_per_unit == pytest.approx(100)
    times.push_audio(LOUD)
    assert times.take_due(3300)[-1] == TimedWord("bb", 29, 31, 3200, 3500)


def test_speed_shrinks_the_time() -> None:
    times = WordTimes(RATE, 2.0, as_written(), ms_per_unit=50)
    times.push_text("One two ")
    times.push_audio(np.tile(LOUD, 4))
    assert [(word.start_ms, word.end_ms) for word in times.take_due(200)] == [(0, 100), (100, 200)]


def test_each_segment_may_have_a_speed() -> None:
    times = WordTimes(RATE, 2.0, as_written(), ms_per_unit=50)
    for text, speed in (("One two ", 1.0), ("one two ", 0.5), ("one two", None)):
        times.push_text(text, speed)
        times.end_text()
    for _ in range(3):
        times.push_audio(np.tile(LOUD, 4))
        times.end_audio()
    words = times.take_due(2000)
    assert [(word.start_ms, word.end_ms) for word in words[:1] + words[2:3] + words[4:5]] == [
        (0, 133),
        (400, 667),
        (1200, 1267),
    ]
    assert [times.position(ms) for ms in (133, 134, 400, 1199, 1200, 1400)] == [0, 3, 8, 15, 16, 23]


def test_characters_of_chinese_are_words_and_punctuation_alone_is_not() -> None:
    times = WordTimes(RATE, 1.0, as_written())
    times.push_text("你好 — 3 a")
    times.end_text()
    times.push_audio(np.tile(LOUD, 20))
    times.end_audio()
    assert [word.text for word in times.take_due(2000)] == ["你", "好", "3", "a"]


def test_signs_that_are_said_are_words() -> None:
    times = WordTimes(RATE, 1.0, as_written(), ms_per_unit=50)
    times.push_text("Rock & roll – 2 ≤ 3 ... € 😀")
    times.end_text()
    times.push_audio(np.tile(LOUD, 30))
    times.end_audio()
    assert [word.text for word in times.take_due(3000)] == ["Rock", "&", "roll", "2", "≤", "3", "€"]


@settings(max_examples=80)
@given(
    st.lists(
        st.lists(st.sampled_from(["a", "bc", "def ", " ", ", ", "!", "你", "4 "]), max_size=8), min_size=1, max_size=4
    ),
    st.integers(0, 2000),
)
def test_position_grows_with_what_is_heard_up_to_all(segments: list[list[str]], step_ms: int) -> None:
    text = "".join(piece for segment in segments for piece in segment)
    times = WordTimes(RATE, 1.0, as_written())
    total_ms, words = 0, []
    for segment in segments:
        for piece in segment:
            times.push_text(piece)
        times.end_text()
    for segment in segments:
        for _ in segment:
            times.push_audio(LOUD)
            total_ms += 100
            words += times.take_due(total_ms)
        times.end_audio()
    words += times.take_due(total_ms)
    assert [text[word.start : word.end] for word in words] == [word.text for word in words]
    assert all(a.end <= b.start and a.end_ms <= b.start_ms for a, b in itertools.pairwise(words))
    positions = [times.position(at_ms) for at_ms in range(0, total_ms, step_ms + 1)]
    assert positions == sorted(positions)
    assert times.position(total_ms) == len(text)


def test_words_that_another_session_told_keep_their_times_and_give_the_rate() -> None:
    times = WordTimes(RATE, 2.0, as_written(), ms_per_unit=500)
    text = "One two three four five six seven eight"
    times.resume([(3, 100), (7, 150), (13, 250), (18, 350), (23, 450), (27, 500)])
    times.skip_audio(RATE)
    assert [times.position(ms) for ms in (99, 100, 500)] == [0, 0, 0], "of a text that has not come"
    times.segmenter.push(text)
    assert [times.position(ms) for ms in (99, 100, 249, 499)] == [0, 3, 7, 23], "nor has its turn"
    times.push_text(text)
    assert [times.position(ms) for ms in (99, 100, 249, 500)] == [0, 3, 7, 27]
    times.push_audio(np.tile(LOUD, 5))
    assert times.position(599) == 27 and times.position(601) == 33  # 24 units took 400 ms, and "seven" has 6


def test_after_a_short_word_the_others_catch_up_with_the_engine() -> None:
    """The first is told before its end is known, as longer than it is. All after it were estimates then."""
    times, now_ms = WordTimes(RATE, 1.0, as_written(), ms_per_unit=65), 0
    text = "Could you tell me where the nearest pharmacy is?"

    def begins_ms(char: int) -> float:
        return max(0, 40.0 * char - 115)

    times.follow(lambda char: begins_ms(char) if begins_ms(char) <= now_ms else None)
    times.push_text(text)
    times.end_text()
    words: list[TimedWord] = []
    for now_ms in range(80, 2000, 80):
        times.push_audio(np.full(RATE * 80 // 1000, 8000, np.int16))
        words += times.take_due(now_ms)
    assert [word.text for word in words] == text.split()
    assert [word.estimated for word in words[4:]] == [False] * 5
    assert all(word.start_ms - begins_ms(word.start) <= 80 for word in words[4:])


def test_a_short_word_does_not_delay_the_next() -> None:
    times, now_ms = WordTimes(RATE, 1.0, as_written()), 0

    def reached_ms(char: int) -> float | None:
        begins_ms = 70.0 if char < 9 else 400.0 if char < 16 else 900.0
        return begins_ms if begins_ms <= now_ms - 40 else None  # to the middle of the last frame

    times.follow(reached_ms)
    times.push_text("The train leaves.")
    times.end_text()
    words: list[TimedWord] = []
    for now_ms in range(80, 640, 80):
        times.push_audio(np.full(RATE * 80 // 1000, 8000, np.int16))
        words += times.take_due(now_ms)
    assert [word.start_ms for word in words] == [0, 80, 400]  # what lies before 80 was sent, and the first told, before
    assert not any(word.estimated for word in words)


def test_what_another_session_told_is_told_in_the_times_of_its_part() -> None:
    times = WordTimes(RATE, 2.0, as_written())
    times.resume([(3, 500), (7, 900), (11, 1250), (17, 1500)])
    for text in ("One two", " six seven nine"):
        times.segmenter.push(text)
        times.push_text(text)
        times.end_text()
    assert times.told_words() == ((0, 0), (3, 1000)), "but where the speech is in the last word, or behind it"
    times.skip_audio(RATE * 2)
    times.end_audio()
    told = ((0, 0), (4, 500))
    assert times.told_words() == told
    times.skip_audio(RATE)
    times.take_due(1400)
    assert times.told_words() == told, "also of words that were reported"
