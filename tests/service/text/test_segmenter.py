import pytest

from sonorant.service.errors import InvalidField
from sonorant.service.text.pronunciations import Lexicon, check_pronunciations
from sonorant.service.text.segmenter import (
    COMPLETE_DELAY_S,
    SENTENCE_DELAY_S,
    WORDS_DELAY_S,
    CommitMode,
    EndSegment,
    Event,
    Segmenter,
    Text,
    TextPolicy,
)

END, LAST = EndSegment(), EndSegment(last=True)


def segmenter(
    mode: CommitMode = CommitMode.TOKEN, first_chunk_min_chars: int = 0, delay_s: float | None = None, **phrases: str
) -> Segmenter:
    lexicon = check_pronunciations(phrases, "pronunciations") if phrases else Lexicon()
    return Segmenter(TextPolicy(mode, delay_s, first_chunk_min_chars), lexicon, 1000)


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


@pytest.mark.parametrize("mode", [CommitMode.TOKEN, CommitMode.SENTENCE])
@pytest.mark.parametrize(
    ("text", "delay_s"),
    [
        ("Let me look that up for you.", SENTENCE_DELAY_S),
        ("That makes $25.", SENTENCE_DELAY_S),
        ("यह ठीक है।", SENTENCE_DELAY_S),
        ("هل هذا صحيح؟", SENTENCE_DELAY_S),
        ("And then ", WORDS_DELAY_S),
        ("One, two, ", WORDS_DELAY_S),
        ("你好", WORDS_DELAY_S),
        ("word", None),
        ("$25.9", None),
        ("  \n", None),
        ("", None),
    ],
)
def test_how_long_text_waits_for_more(mode: CommitMode, text: str, delay_s: float | None) -> None:
    cut = segmenter(mode)
    cut.push(text)
    assert cut.commit_delay_s == delay_s
    assert bool(cut.commit_tail()) == (delay_s is not None)
    assert cut.commit_delay_s is None and cut.commit_tail() == [], "nothing waits any more, or all of it waits for more"


@pytest.mark.parametrize(
    ("text", "delay_s"),
    [
        ("Let me look that up for you. ", COMPLETE_DELAY_S),
        ("Wait!\n\n", COMPLETE_DELAY_S),
        ('She said: "Really?" ', COMPLETE_DELAY_S),
        ("I know, Dr. Lee. ", COMPLETE_DELAY_S),
        ("你好。", COMPLETE_DELAY_S),
        ("यह ठीक है। ", COMPLETE_DELAY_S),
        ("هل هذا صحيح؟ ", COMPLETE_DELAY_S),
        ("It is here.", SENTENCE_DELAY_S),  # ".com" may follow
        ("I know, Dr. ", SENTENCE_DELAY_S),
        ("Fruit, e.g. ", SENTENCE_DELAY_S),
        ("At 5 p.m. ", SENTENCE_DELAY_S),
        ("We need 3. ", SENTENCE_DELAY_S),
        ("George W. ", SENTENCE_DELAY_S),
        ("Well... ", SENTENCE_DELAY_S),
        ("Well… ", SENTENCE_DELAY_S),
    ],
)
def test_a_sentence_that_is_complete_waits_less_where_each_is_a_segment(text: str, delay_s: float) -> None:
    words = segmenter()
    words.push(text)
    assert words.commit_delay_s == SENTENCE_DELAY_S, "more of the segment may follow"
    cut = segmenter(CommitMode.SENTENCE)
    cut.push(text)
    assert cut.commit_delay_s == delay_s
    assert [type(event) for event in cut.commit_tail()] == [Text, EndSegment]


def test_a_pause_after_a_sentence_ends_the_segment() -> None:
    text = segmenter()
    assert text.push("Let me look. ") == [same("Let me look. ")]
    assert text.commit_tail() == [END]
    assert text.push(" Here") == [same(" Here")]
    assert text.commit_delay_s is None and text.commit_tail() == [], "the word may still grow"
    assert text.end() == [LAST] and text.commit_delay_s is None


def test_a_pause_cuts_no_word() -> None:
    for mode, first_chunk_min_chars in ((CommitMode.SENTENCE, 0), (CommitMode.TOKEN, 100)):
        text = segmenter(mode, first_chunk_min_chars)
        text.push("Half a sen")
        assert text.commit_delay_s == WORDS_DELAY_S
        assert text.commit_tail() == [same("Half a "), END]
        assert text.commit_delay_s is None
        assert text.push("tence. ") == ([same("sentence. ")] if mode is CommitMode.TOKEN else [])
        assert text.end()[-1] == LAST


def test_a_pause_of_the_callers_own_delay_commits_all_that_is_held_back() -> None:
    text = segmenter(CommitMode.SENTENCE, delay_s=0.1)
    text.push("Half a sen")
    assert text.commit_delay_s == 0.1
    assert text.commit_tail() == [same("Half a sen"), END]
    assert text.commit_tail() == [], "nothing was waiting"
    text = segmenter(delay_s=0.1, Hel="Help")
    assert text.push("Hel") == [Text("Hel", "")]
    assert text.commit_tail() == [Text("", "Help"), END]


def test_what_is_spoken_may_come_later_than_what_is_written() -> None:
    text = segmenter(GIF="jif")
    assert text.push("a GI") == [Text("a GI", "a ")]
    assert text.push("F") == [Text("F", "")]
    assert text.flush(1) == [Text("", "jif"), EndSegment(1)]


def test_limits() -> None:
    text = segmenter()
    with pytest.raises(InvalidField, match="over 5000"):
        text.flush(1, 5001)
