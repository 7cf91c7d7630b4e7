"""A draft that a server changes as it is told becomes the final hypothesis, but for words that were heard."""

from hypothesis import given
from hypothesis import strategies as st

from sonorant.asr.draft import Change, Draft
from sonorant.asr.hypotheses import Hypothesis, Part
from sonorant.asr.words import split_words
from sonorant.service.text.revision import place

WORDS = st.sampled_from(["one", "word", "or", "another", "some", "something", "twenty", "six", "你", "好"])
TEXTS = st.lists(WORDS, max_size=8).map(" ".join)


def hypothesis(text: str, time_s: float = 0.0, *, final: bool = False) -> Hypothesis:
    return Hypothesis((Part(text),), time_s, final)


class Server:
    """Its side of one utterance: what was heard of the text stays, to the end of the word."""

    def __init__(self) -> None:
        self.text = ""
        self.heard = 0
        self.flushed: list[int] = []  # characters that were there

    def take(self, change: Change, draft: Draft) -> None:
        if change.appends:
            assert change.from_char == len(self.text)
            self.text += change.text
        else:
            at = place(self.text, change.from_char, self.heard, change.text)
            self.text = self.text[: at.from_char] + change.text[at.text_char :]
            self.flushed = [end for end in self.flushed if end <= at.from_char]
            draft.revised(change, at.from_char, at.text_char)
        if draft.ends_phrase():
            self.flushed.append(len(self.text))

    def hear(self, num_chars: int) -> None:
        """To the end of a word."""
        self.heard = max(self.heard, min(num_chars, len(self.text)))
        while 0 < self.heard < len(self.text) and not self.text[self.heard].isspace():
            self.heard += 1


@given(st.lists(st.tuples(TEXTS, st.integers(0, 12)), max_size=8), TEXTS, st.integers(1, 3), st.integers(0, 4))
def test_what_was_heard_stays_and_the_rest_is_the_final_hypothesis(
    partials: list[tuple[str, int]], final: str, agreement: int, phrase_words: int
) -> None:
    draft, server, heard = Draft(agreement, phrase_words), Server(), ""
    for time_s, (text, num_more) in enumerate(partials):
        while (change := draft.feed(hypothesis(text, time_s))) is not None:
            server.take(change, draft)
            unflushed = server.text[max(server.flushed, default=0) :]
            assert not phrase_words or len(split_words(unflushed)) < phrase_words
        assert server.text.startswith(heard)
        server.hear(server.heard + num_more)
        heard = server.text[: server.heard]
    while (change := draft.feed(hypothesis(final, 99.0, final=True))) is not None:
        server.take(change, draft)
    assert server.text.startswith(heard)
    sent = draft.finish(hypothesis(final, 99.0, final=True))
    assert "".join(word.text.replace(" ", "") for word in sent) == server.text.replace(" ", "")
    if not server.heard:
        assert draft.num_contradicted == 0


def test_a_word_is_sent_with_the_first_hypothesis_that_has_one_behind_it_and_corrected() -> None:
    draft = Draft()
    assert draft.feed(hypothesis("good", 0.1)) is None
    assert draft.feed(hypothesis("good moaning", 0.2)) == Change(0, "good ", appends=True)
    assert draft.feed(hypothesis("good moaning to", 0.3)) == Change(5, "moaning ", appends=True)
    change = draft.feed(hypothesis("good morning to you", 0.4))
    assert change == Change(4, " morning to ", appends=False)
    draft.revised(change, 4, 0)
    assert draft.feed(hypothesis("good morning to you", 0.5, final=True)) == Change(16, "you ", appends=True)
    assert draft.feed(hypothesis("good morning to you", 0.5, final=True)) is None
    sent = draft.finish(hypothesis("good morning to you", 0.5, final=True))
    assert [(word.text, word.released_s) for word in sent] == [
        ("good", 0.2),
        (" morning", 0.4),
        (" to", 0.4),
        (" you", 0.5),
    ]
    assert draft.num_contradicted == 0


def test_a_word_that_was_heard_stays_and_counts() -> None:
    draft = Draft()
    draft.feed(hypothesis("good moaning to"))
    change = draft.feed(hypothesis("good morning to you"))
    assert change == Change(4, " morning to ", appends=False)
    draft.revised(change, 12, 8)  # as many words of the revision are left out
    assert draft.feed(hypothesis("good morning to you")) is None
    final = hypothesis("good morning to you", final=True)
    assert draft.feed(final) == Change(16, "you ", appends=True)
    assert [word.text for word in draft.finish(final)] == ["good", " moaning", " to", " you"]
    assert draft.num_contradicted == 1


def test_every_few_words_are_a_phrase_and_a_revision_takes_it_back() -> None:
    draft = Draft(phrase_words=2)
    assert draft.feed(hypothesis("good moaning to")) == Change(0, "good moaning ", appends=True)
    assert draft.ends_phrase()
    change = draft.feed(hypothesis("good morning to you"))
    assert change == Change(4, " morning to ", appends=False)
    assert not draft.ends_phrase(), "not a second time"
    draft.revised(change, 4, 0)
    assert draft.ends_phrase()
    assert draft.feed(hypothesis("good morning to you all")) == Change(16, "you ", appends=True)
    assert not draft.ends_phrase()


def test_a_word_that_stays_in_the_place_of_a_character_does_not_melt_into_the_next_one() -> None:
    draft = Draft(phrase_words=0)
    assert draft.feed(hypothesis("one word two")) == Change(0, "one word ", appends=True)
    final = hypothesis("one 你 two", final=True)
    change = draft.feed(final)
    assert change == Change(3, " 你 two ", appends=False)
    draft.revised(change, 8, 2)
    assert draft.feed(final) is None
    assert [word.text for word in draft.finish(final)] == ["one", " word", " two"]
