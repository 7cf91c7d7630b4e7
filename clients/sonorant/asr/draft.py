"""A recognizer's changing opinion as a text that is spoken at once and corrected while nobody has heard it. Pure.

Words are sent as soon as another word stands after them and `agreement` hypotheses in a row have them. What the
recognizer takes back later is revised; the answer says from where on that holds, and words before that stay, right or
wrong. What depends on the word after it waits for that (`words.may_grow`), since how it is read cannot be revised.

A model that takes a token per frame says a word when it has had as many tokens as frames, which at the speed of speech
is several words later, and mostly behind the end. So every few words may be a phrase that is flushed: it is said at
once, in a state of its own, since behind so little speech a model may take the carried state for an end.
"""

from collections import deque
from dataclasses import dataclass

from sonorant.asr.commit import ReleasedWord, num_common, place_after
from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.words import ends_in_unspaced_script, may_grow, split_words

DEFAULT_AGREEMENT = 1
DEFAULT_PHRASE_WORDS = 0


@dataclass(frozen=True, slots=True)
class Change:
    """The utterance's text is `text` from `from_char` on; appended if nothing was there."""

    from_char: int
    text: str
    appends: bool


class Draft:
    """One stream of hypotheses in, changes of the utterance out. Each change but an append has to be answered
    (`revised`) before the next hypothesis."""

    def __init__(self, agreement: int = DEFAULT_AGREEMENT, phrase_words: int = DEFAULT_PHRASE_WORDS) -> None:
        """`phrase_words`: 0 for no phrases."""
        if agreement < 1:
            raise ValueError(f"agreement is {agreement}; at least one hypothesis is needed")
        if phrase_words < 0:
            raise ValueError(f"a phrase has {phrase_words} words; 0 means no phrases")
        self._phrase_words = phrase_words
        self._phrase_ends: list[int] = []  # characters of the text that were there when it was flushed
        self.num_contradicted = 0  # words that were spoken, and are not what the final hypothesis has
        self._recent: deque[list[str]] = deque(maxlen=agreement)
        self._heard_s: list[float] = []  # of each word of the latest hypothesis
        self._text = ""  # of the utterance, ...
        self._sent: list[ReleasedWord] = []  # ... by words
        self._num_fixed = 0  # words at its beginning that stay
        self._before: tuple[str, list[ReleasedWord]] = ("", [])  # both, before the last change

    def feed(self, hypothesis: Hypothesis) -> Change | None:
        """What has to change. Also right after an answer, with the same hypothesis: it may have left more to do."""
        words = split_words(hypothesis.text)
        self._note(words, hypothesis)
        end = len(words) if hypothesis.is_final else self._num_settled(words)
        told = split_words(self._text)
        begin, _ = place_after(told[: self._num_fixed], words)
        wanted = words[begin : max(begin, end)]
        drafted = told[self._num_fixed :]
        num_same = num_common([word.strip() for word in drafted], [word.strip() for word in wanted])
        if num_same == len(drafted) == len(wanted):
            return None
        num_kept = self._num_fixed + num_same
        appends = num_same == len(drafted)
        from_char = len(self._text) if appends else _end_of(self._text, num_kept)
        new = [
            ReleasedWord(word, heard_s, hypothesis.time_s) for word, heard_s in zip(words, self._heard_s, strict=True)
        ][begin + num_same : begin + len(wanted)]
        text = _spaced(self._text[:from_char], [word.text for word in new])
        self._before = self._text, self._sent
        self._text, self._sent = self._text[:from_char] + text, self._sent[:num_kept] + new
        return Change(from_char, text, appends)

    def revised(self, change: Change, from_char: int, text_char: int) -> None:
        """The answer to a change: words of the old text up to a later place stay."""
        self._phrase_ends = [end for end in self._phrase_ends if end <= from_char]
        if from_char == change.from_char:
            return
        old_text, old_sent = self._before
        self._num_fixed = len(split_words(old_text[:from_char]))
        num_kept = len(split_words(old_text[: change.from_char]))
        num_left_out = len(split_words(change.text[:text_char]))
        self._text = old_text[:from_char] + change.text[text_char:]
        self._sent = old_sent[: self._num_fixed] + self._sent[num_kept + num_left_out :]

    def ends_phrase(self) -> bool:
        """After a change, and its answer: whether the text is to be flushed, as it then counts to be."""
        start = self._phrase_ends[-1] if self._phrase_ends else 0
        if not 0 < self._phrase_words <= len(split_words(self._text[start:])):
            return False
        self._phrase_ends.append(len(self._text))
        return True

    def finish(self, hypothesis: Hypothesis) -> list[ReleasedWord]:
        """After a final hypothesis, and all changes that it made: what was spoken. The next one begins anew."""
        self.num_contradicted += place_after(split_words(self._text), split_words(hypothesis.text))[1]
        sent, self._sent, self._text, self._num_fixed, self._heard_s = self._sent, [], "", 0, []
        self._phrase_ends.clear()
        self._recent.clear()
        return sent

    def _note(self, words: list[str], hypothesis: Hypothesis) -> None:
        before = self._recent[-1] if self._recent else []
        if words == before and len(self._heard_s) == len(words):
            if not hypothesis.is_final:
                self._recent.append(words)
            return
        self._heard_s = [
            self._heard_s[i] if i < len(before) and before[i] == word else hypothesis.time_s
            for i, word in enumerate(words)
        ]
        self._recent.append(words)

    def _num_settled(self, words: list[str]) -> int:
        if len(self._recent) < (self._recent.maxlen or 1):
            return 0
        end = min(len(words) - 1, *(num_common(recent, words) for recent in self._recent))
        while end > 0 and may_grow(words[end - 1]):
            end -= 1
        return max(0, end)


def _spaced(before: str, words: list[str]) -> str:
    """With the space after each word, which tells the server that it is whole, and one in front where it is missing.

    None between characters that are words of their own; the answer may leave any word out, and the rest must not melt
    into the word before.
    """
    plain = [word.lstrip() for word in words]
    text = "".join(
        word if ends_in_unspaced_script(word) and ends_in_unspaced_script(after) else word + " "
        for word, after in zip(plain, [*plain[1:], "\u3000"], strict=False)
    )
    is_missing = bool(text and before) and not before[-1].isspace() and not ends_in_unspaced_script(before)
    return " " + text if is_missing else text


def _end_of(text: str, num_words: int) -> int:
    """Of so many words, without the space behind them."""
    end = 0
    for word in split_words(text)[:num_words]:
        end = text.index(word.strip(), end) + len(word.strip())
    return end
