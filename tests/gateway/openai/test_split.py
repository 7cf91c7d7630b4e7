"""Texts that are cut, and texts that are nothing but cuts."""

import pytest

from sonorant.gateway.openai.split import Granularity, Splitter


def test_an_end_is_whole_before_it_is_one() -> None:
    splitter = Splitter("sentence")
    pieces = [splitter.feed(letter) for letter in 'He said.。”So. And "No!!" e.g. this. Two'] + [splitter.rest()]
    assert [piece for piece in pieces if piece] == [["He said.。”"], ["So."], ['And "No!!"'], ["e.g. this."], ["Two"]]


@pytest.mark.parametrize("text", ["Yes.", "Yes. ", 'He said "No!"', "三。", "Is it?)", "$25."])
def test_a_sentence_may_be_whole_before_anything_follows(text: str) -> None:
    splitter = Splitter("sentence")
    assert splitter.feed(text) == [text.strip()] or splitter.holds_sentence
    splitter.feed(" and")
    assert not splitter.holds_sentence


@pytest.mark.parametrize("granularity", ["sentence", "clause"])
@pytest.mark.parametrize("run", ["!", "a. ", '"', '."', "。", ".!", "e.g"])
def test_marks_without_end_take_no_longer_than_words(granularity: Granularity, run: str) -> None:
    """128 KB of them once took the process minutes: each mark, and each abbreviation, looked at all of the rest."""
    text = run * (128 * 1024 // len(run.encode()))
    splitter = Splitter(granularity)
    units = splitter.feed(text) + splitter.feed(" ") + splitter.rest()
    assert "".join("".join(units).split()) == "".join(text.split())


def test_marks_that_come_one_by_one_are_not_all_looked_at_again() -> None:
    splitter = Splitter("sentence")
    assert [unit for _ in range(20_000) for unit in splitter.feed("!")] == []
    assert splitter.feed(" x") == ["!" * 20_000]
