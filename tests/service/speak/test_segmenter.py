import pytest

from sonorant.service.errors import InvalidField
from sonorant.service.speak.segmenter import CommitMode, EndSegment, Event, ReleaseTail, Segmenter, Text, TextPolicy
from sonorant.service.text.pronunciations import Lexicon, check_pronunciations

END, LAST = EndSegment(), EndSegment(last=True)


def segmenter(mode: CommitMode = CommitMode.TOKEN, first_chunk_min_chars: int = 0, **phrases: str) -> Segmenter:
    lexicon = check_pronunciations(phrases, "pronunciations") if phrases else Lexicon()
    return Segmenter(TextPolicy(mode, first_chunk_min_chars=first_chunk_min_chars), 1000, lexicon)


def same(text: str) -> Event:
    """Spoken as it is written."""
    return Text(text, text)


def test_tokens_are_committed_as_they_come() -> None:
    text = segmenter()
    assert text.push("Hel") == [same("Hel")]
    assert text.push("lo") == [same("lo")]
    assert text.end() == [LAST]
    assert text.end() == [], "it has ended"
    assert text.num_chars == 5


def test_manual_waits_for_flush_and_end_alone() -> None:
    text = segmenter(CommitMode.MANUAL)
    assert text.push("One. Two words. Three.") == []
    assert text.commit_tail() == []
    assert text.flush(7, 100) == [same("One. Two words. Three."), EndSegment(7, 100)]
    assert text.push("Four") == []
    assert text.end() == [same("Four"), LAST]


def test_the_first_chunk_has_as_many_characters_as_asked_for() -> None:
    text = segmenter(first_chunk_min_chars=10)
    assert text.push("012345678") == []
    assert text.push("9") == [same("0123456789")]
    assert text.push("0") == [same("0")]


def test_sentences_that_are_too_short_to_begin_with_go_together() -> None:
    text = segmenter(CommitMode.SENTENCE, first_chunk_min_chars=15)
    assert text.push("Oh no. I see it. That is good. And so on") == [
        same("Oh no. I see it. "),
        END,
        same("That is good. "),
        END,
    ]


def test_a_pause_commits_what_is_held_back() -> None:
    text = segmenter(CommitMode.SENTENCE)
    text.push("Half a sentence")
    assert text.commit_tail() == [same("Half a sentence"), END]
    assert text.commit_tail() == [], "nothing was waiting"


def test_a_pause_releases_the_end_of_a_word() -> None:
    text = segmenter(Hel="Help")
    assert text.push("Hel") == [Text("Hel", "")]
    assert text.commit_tail() == [Text("", "Help"), ReleaseTail()]


def test_what_is_spoken_may_come_later_than_what_is_written() -> None:
    text = segmenter(GIF="jif")
    assert text.push("a GI") == [Text("a GI", "a ")]
    assert text.push("F") == [Text("F", "")]
    assert text.flush(1) == [Text("", "jif"), EndSegment(1)]


def test_limits() -> None:
    text = segmenter()
    text.check("a" * 1000)
    with pytest.raises(InvalidField, match="limit of 1000"):
        text.check("a" * 1001)
    text.push("a" * 600)
    with pytest.raises(InvalidField, match="limit of 1000"):
        text.check("a" * 401)
    with pytest.raises(InvalidField, match="control character"):
        text.check("a\0")
    with pytest.raises(InvalidField, match="over 5000"):
        text.flush(1, 5001)
