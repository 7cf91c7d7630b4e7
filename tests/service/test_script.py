import pytest

from service.errors import InvalidField, LimitReached
from service.progress import Progress
from service.pronunciations import Lexicon
from service.script import MAX_PENDING_FLUSHES, CommitMode, Script, TextPolicy


def script(mode: CommitMode = CommitMode.TOKEN, first_chunk_min_chars: int = 0) -> Script:
    return Script(TextPolicy(mode, first_chunk_min_chars=first_chunk_min_chars), Progress(24_000, 1.0), 1000, Lexicon())


def held(text: Script) -> list[str]:
    return ["".join(segment.held) for segment in text.segments]


def test_tokens_are_committed_as_they_come() -> None:
    text = script()
    text.push("Hel")
    assert held(text) == ["Hel"]
    assert text.segments[0].ready.is_set()


def test_manual_waits_for_flush_and_end_alone() -> None:
    text = script(CommitMode.MANUAL)
    text.push("One. Two words. Three.")
    text.commit_tail()
    assert not text.segments[0].ready.is_set()
    text.flush(7)
    assert held(text) == ["One. Two words. Three.", ""]
    text.push("Four")
    text.end()
    assert held(text)[1] == "Four"
    assert text.segments[-1].last


def test_the_first_chunk_has_as_many_characters_as_asked_for() -> None:
    text = script(first_chunk_min_chars=10)
    text.push("012345678")
    assert held(text) == [""]
    text.push("9")
    text.push("0")
    assert held(text) == ["01234567890"]


def test_sentences_that_are_too_short_to_begin_with_go_together() -> None:
    text = script(CommitMode.SENTENCE, first_chunk_min_chars=15)
    text.push("Oh no. I see it. That is good. And so on")
    assert held(text) == ["Oh no. I see it. ", "That is good. ", ""]


def test_a_pause_commits_what_is_held_back() -> None:
    text = script(CommitMode.SENTENCE)
    text.push("Half a sentence")
    text.commit_tail()
    assert held(text) == ["Half a sentence", ""]
    text.commit_tail()
    assert len(text.segments) == 2, "nothing was waiting"


def test_limits() -> None:
    text = script()
    with pytest.raises(InvalidField, match="limit of 1000"):
        text.push("a" * 1001)
    for number in range(MAX_PENDING_FLUSHES):
        text.flush(number)
    with pytest.raises(LimitReached, match="flush less often"):
        text.flush(99)
