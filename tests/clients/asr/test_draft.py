"""A draft that a server changes as it is told becomes the final hypothesis, but for words that were heard."""

from hypothesis import given
from hypothesis import strategies as st

from sonorant.asr.draft import Draft, DraftChange
from sonorant.asr.hypotheses import Hypothesis, HypothesisPart
from sonorant.service.text.revision import place

WORDS = st.sampled_from(["one", "word", "or", "another", "some", "something", "twenty", "six", "你", "好"])
TEXTS = st.lists(WORDS, max_size=8).map(" ".join)


def hypothesis(text: str, time_s: float = 0.0, *, final: bool = False) -> Hypothesis:
    return Hypothesis((HypothesisPart(text),), time_s, final)


class Server:
    """Its side of one utterance: what was heard of the text stays, to the end of the word."""

    def __init__(self) -> None:
        self.text = ""
        self.heard = 0
        self.flushed: list[int] = []  # characters that were there

    def take(self, change: DraftChange, draft: Draft) -> None:
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


def say(draft: Draft, server: Server, *, waits: bool) -> None:
    while (change := draft.change(listener_waits=waits)) is not None:
        server.take(change, draft)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 12), st.booleans()), max_size=8), TEXTS, st.integers(1, 3))
def test_heard_words_stay_and_the_rest_is_the_final_hypothesis(
    partials: list[tuple[str, int, bool]], final: str, agreement: int
) -> None:
    draft, server, heard = Draft(agreement), Server(), ""
    for time_s, (text, num_more, waits) in enumerate(partials):
        draft.feed(hypothesis(text, time_s))
        say(draft, server, waits=waits)
        assert not server.text[max(server.flushed, default=0) :].strip(), "what is sent is said to its end"
        assert server.text.startswith(heard)
        server.hear(server.heard + num_more)
        heard = server.text[: server.heard]
    draft.feed(hypothesis(final, 99.0, final=True))
    say(draft, server, waits=False)
    assert server.text.startswith(heard)
    sent = draft.finish()
    assert "".join(word.text.replace(" ", "") for word in sent) == server.text.replace(" ", "")
    if not server.heard:
        assert draft.num_contradicted == 0


def test_words_wait_and_may_change_while_the_listener_has_audio() -> None:
    draft = Draft(agreement=1)
    draft.feed(hypothesis("good moaning to", 0.1))
    assert draft.change(listener_waits=False) is None
    draft.feed(hypothesis("good morning to", 0.2))
    assert draft.change(listener_waits=True) == DraftChange(0, "good morning ", appends=True)
    assert draft.ends_phrase() and not draft.ends_phrase()
    draft.feed(hypothesis("good morning to you", 0.3))
    assert draft.change(listener_waits=True) is None, "a word alone is no phrase"
    draft.feed(hypothesis("good morning to you all", 0.4))
    assert draft.change(listener_waits=True) == DraftChange(13, "to you ", appends=True)
    assert draft.ends_phrase()
    draft.feed(hypothesis("good morning to you all", 0.5, final=True))
    assert draft.change(listener_waits=False) == DraftChange(20, "all ", appends=True), "it is all: nothing will change"
    assert not draft.ends_phrase(), "the end is enough"
    assert [(word.text, word.heard_s, word.released_s) for word in draft.finish()] == [
        ("good", 0.1, 0.2),
        (" morning", 0.2, 0.2),
        (" to", 0.1, 0.4),
        (" you", 0.3, 0.4),
        (" all", 0.4, 0.5),
    ]
    assert draft.num_contradicted == 0


def test_a_word_is_spoken_after_enough_hypotheses_in_a_row_have_it() -> None:
    draft = Draft(agreement=2)
    for text, change in (
        ("good morning to", None),
        ("good moaning to", None),
        ("good moaning to you", DraftChange(0, "good moaning to ", appends=True)),
    ):
        draft.feed(hypothesis(text))
        assert draft.change(listener_waits=True) == change
        assert draft.change(listener_waits=True) is None, "asked again, it is no further hypothesis"


def test_words_that_change_are_revised_at_once_and_the_rest_is_flushed_again() -> None:
    draft = Draft(agreement=2)
    for _ in range(2):
        draft.feed(hypothesis("this is good moaning to"))
    assert draft.change(listener_waits=True) == DraftChange(0, "this is good moaning ", appends=True)
    assert draft.ends_phrase()
    draft.feed(hypothesis("this is"))
    assert draft.change(listener_waits=True) is None, "the recognizer has lost sight of the rest, no more"
    draft.feed(hypothesis("this is good morning to"))
    change = draft.change(listener_waits=False)
    assert change == DraftChange(12, "", appends=False), "what stands there now is not settled"
    draft.revised(change, 12, 0)
    assert draft.ends_phrase(), "the flush was taken back with its text"
    assert draft.change(listener_waits=False) is None


def test_a_word_that_was_heard_stays_and_counts() -> None:
    draft = Draft(agreement=1)
    draft.feed(hypothesis("good moaning to"))
    assert draft.change(listener_waits=True) == DraftChange(0, "good moaning ", appends=True)
    assert draft.ends_phrase()
    draft.feed(hypothesis("good morning to you"))
    change = draft.change(listener_waits=False)
    assert change == DraftChange(4, " morning to ", appends=False)
    draft.revised(change, 12, 8)  # as many words of the revision are left out
    assert draft.change(listener_waits=False) is None
    assert draft.ends_phrase()
    draft.feed(hypothesis("good morning to you", final=True))
    assert draft.change(listener_waits=False) == DraftChange(16, "you ", appends=True)
    assert [word.text for word in draft.finish()] == ["good", " moaning", " to", " you"]
    assert draft.num_contradicted == 1


def test_a_word_that_stays_in_place_of_a_character_is_not_joined_to_the_next_word() -> None:
    draft = Draft(agreement=1)
    draft.feed(hypothesis("one word two"))
    assert draft.change(listener_waits=True) == DraftChange(0, "one word ", appends=True)
    draft.feed(hypothesis("one 你 two", final=True))
    change = draft.change(listener_waits=True)
    assert change == DraftChange(3, " 你 two ", appends=False)
    draft.revised(change, 8, 2)
    assert draft.change(listener_waits=True) is None
    assert [word.text for word in draft.finish()] == ["one", " word", " two"]
