"""A recognizer's changing opinion as a text that is spoken in phrases, just in time, and corrected while unheard. Pure.

Words are held back for as long as the listener has something to hear: meanwhile the recognizer may change its mind at
no cost. When the listener is about to wait, all words that `agreement` hypotheses in a row have, with another word
behind them, are one phrase: the model says it at once and to its end, where it would else say words only behind the
text of the next ones, since it takes a token per frame. A phrase begins in a state of its own: behind so little speech
a model may take the carried state for an end.

What the recognizer takes back of a phrase is revised; the answer says from where on that holds, and words before that
stay, right or wrong. What depends on the word after it waits for that (`words.may_grow`), since how it is read cannot
be revised.
"""

from collections import deque
from dataclasses import dataclass

from sonorant.asr.commit import ReleasedWord, num_common, place_after
from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.words import ends_in_unspaced_script, may_grow, split_words

DEFAULT_AGREEMENT = 5
MIN_PHRASE_WORDS = 2  # one alone sounds lost, and costs more pauses than it saves time


@dataclass(frozen=True, slots=True)
class Change:
    """The utterance's text is `text` from `from_char` on; appended if nothing was there."""

    from_char: int
    text: str
    appends: bool


class Draft:
    """One stream of hypotheses in, changes of the utterance out. Each change but an append has to be answered
    (`revised`) before the next one is asked for."""

    def __init__(self, agreement: int = DEFAULT_AGREEMENT) -> None:
        if agreement < 1:
            raise ValueError(f"agreement is {agreement}; at least one hypothesis is needed")
        self.num_contradicted = 0  # words that were spoken, and are not what the final hypothesis has
        self._recent: deque[list[str]] = deque(maxlen=agreement)
        self._latest = Hypothesis((), 0.0)
        self._words: list[str] = []  # of the latest hypothesis, ...
        self._heard_s: list[float] = []  # ... and since when they are there
        self._text = ""  # of the utterance, ...
        self._sent: list[ReleasedWord] = []  # ... by words
        self._num_fixed = 0  # words at its beginning that stay
        self._phrase_ends: list[int] = []  # characters of the text that were there when it was flushed
        self._before: tuple[str, list[ReleasedWord]] = ("", [])  # both, before the last change

    def hear(self, hypothesis: Hypothesis) -> None:
        words = split_words(hypothesis.text)
        self._heard_s = [
            self._heard_s[i] if i < len(self._words) and self._words[i] == word else hypothesis.time_s
            for i, word in enumerate(words)
        ]
        self._latest, self._words = hypothesis, words
        self._recent.append(words)

    def change(self, *, listener_waits: bool) -> Change | None:
        """What has to change now. To be asked again after an answer: it may have left more to do. `listener_waits`: or
        is about to, so that what is settled has to be said."""
        is_final = self._latest.is_final
        told = split_words(self._text)
        begin, _ = place_after(told[: self._num_fixed], self._words)
        drafted, heard = told[self._num_fixed :], self._words[begin:]
        num_same = num_common([word.strip() for word in drafted], [word.strip() for word in heard])
        appends = num_same == len(drafted)
        if not is_final and (not listener_waits if appends else num_same == len(heard)):
            return None  # nothing is wanted yet, or the recognizer has only lost sight of the last words
        end = len(self._words) if is_final else self._num_settled()
        wanted = heard[: max(num_same, end - begin)]
        if appends and len(wanted) - num_same < (1 if is_final else MIN_PHRASE_WORDS):
            return None
        num_kept = self._num_fixed + num_same
        from_char = len(self._text) if appends else _end_of(self._text, num_kept)
        new = [
            ReleasedWord(word, heard_s, self._latest.time_s)
            for word, heard_s in zip(self._words, self._heard_s, strict=True)
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
        spoken = self._phrase_ends[-1] if self._phrase_ends else 0
        if self._latest.is_final or not self._text[spoken:].strip():
            return False
        self._phrase_ends.append(len(self._text))
        return True

    def finish(self) -> list[ReleasedWord]:
        """After a final hypothesis, and all changes that it made: what was spoken. The next one begins anew."""
        self.num_contradicted += place_after(split_words(self._text), self._words)[1]
        sent, self._sent, self._text, self._num_fixed = self._sent, [], "", 0
        self._words, self._heard_s = [], []
        self._phrase_ends.clear()
        self._recent.clear()
        return sent

    def _num_settled(self) -> int:
        if len(self._recent) < (self._recent.maxlen or 1):
            return 0
        end = min(len(self._words) - 1, *(num_common(recent, self._words) for recent in self._recent))
        while end > 0 and may_grow(self._words[end - 1]):
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
