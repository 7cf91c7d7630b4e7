import itertools

from hypothesis import given
from hypothesis import strategies as st

from sonorant.cli.subtitles import MAX_CHARS, MAX_MS, captions, subtitles
from sonorant.tts.v1.synthesis_pb2 import Mark


def marks(*words: tuple[str, int, int], gap: int = 1) -> list[Mark]:
    made, at = [], 0
    for text, start_ms, end_ms in words:
        made.append(Mark(text=text, text_start=at, text_end=at + len(text), start_ms=start_ms, end_ms=end_ms))
        at += len(text) + gap
    return made


SPOKEN = marks(("Hello,", 40, 500), ("you.", 520, 900), ("It's", 950, 1200), ("<late>", 3_661_000, 3_661_250))


def test_subrip() -> None:
    assert subtitles(SPOKEN, ".srt") == (
        "1\n00:00:00,040 --> 00:00:00,900\nHello, you.\n\n"
        "2\n00:00:00,950 --> 00:00:01,200\nIt's\n\n"
        "3\n01:01:01,000 --> 01:01:01,250\n<late>\n"
    )


def test_webvtt() -> None:
    text = subtitles(SPOKEN, ".vtt")
    assert text.startswith("WEBVTT\n\n00:00:00.040 --> 00:00:00.900\nHello, you.\n\n")
    assert text.endswith("01:01:01.000 --> 01:01:01.250\n&lt;late&gt;\n")


def test_nothing_spoken_is_an_empty_file() -> None:
    assert (subtitles([], ".vtt"), subtitles([], ".srt")) == ("WEBVTT\n", "\n")


def test_characters_side_by_side_stay_so() -> None:
    assert [each.text for each in captions(marks(("你", 0, 9), ("好。", 9, 20), ("我", 20, 30), gap=0))] == [
        "你好。",
        "我",
    ]


@given(st.lists(st.tuples(st.text("ab.", min_size=1, max_size=30), st.integers(0, 2000), st.integers(0, 1500))))
def test_captions_are_short_and_in_order_and_have_all_words(words: list[tuple[str, int, int]]) -> None:
    at, spoken = 0, []
    for text, wait_ms, lasts_ms in words:
        spoken.append((text, at + wait_ms, at + wait_ms + lasts_ms))
        at += wait_ms + lasts_ms
    shown = captions(marks(*spoken))
    assert " ".join(each.text for each in shown) == " ".join(text for text, *_ in words)
    assert all(one.end_ms <= other.start_ms for one, other in itertools.pairwise(shown))
    assert all(len(each.text) <= MAX_CHARS and each.end_ms - each.start_ms <= MAX_MS for each in shown)
