"""Turns a recognizer's changing hypotheses into text that is spoken in phrases, just in time, and corrected as long as
nobody has heard it. Pure.

Words are held back while the listener still has something to hear, so that the recognizer can change its mind at no
cost. When the listener is about to wait, all words that the last `agreement` hypotheses share, and that another word
follows, become one phrase. The model speaks it at once and to its end; without a flush it would speak words only once
the text of the next ones has come, since it takes a token per frame. A phrase begins with a fresh prompt: after so
little speech, a model may take carried state for the end.

Words of a phrase that the recognizer takes back are revised. The server's answer says from where on the text was
replaced; words before that stay, right or wrong. A word that depends on the next one waits for it (`words.may_grow`),
because the way it was read cannot be revised.
"""

from collections import deque
from dataclasses import dataclass

from sonorant.asr.commit import ReleasedWord, num_common, place_after
from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.words import ends_in_unspaced_script, may_grow, split_words

DEFAULT_AGREEMENT = 5
MIN_PHRASE_WORDS = 2  # a single word sounds lost, and its pauses cost more than it saves


@dataclass(frozen=True, slots=True)
class DraftChange:
    """Replace the utterance's text from `from_char` on by `text`, or append it if the text ends there."""

    from_char: int
    text: str
    appends: bool


class Draft:
    """Takes one stream of hypotheses and returns changes of the utterance's text. After a change that does not append,
    call `revised` with the answer before the next `change`."""

    def __init__(self, agreement: int = DEFAULT_AGREEMENT) -> None:
        if agreement < 1:
            raise ValueError(f"agreement is {agreement}; at least one hypothesis is needed")
        self.num_contradicted = 0  # spoken words that differ from the final hypothesis
        self._recent: deque[list[str]] = deque(maxlen=agreement)
        self._latest = Hypothesis((), 0.0)
        self._words: list[str] = []  # words of the latest hypothesis, ...
        self._heard_s: list[float] = []  # ... and since when they are there
        self._text = ""  # text of the utterance, ...
        self._sent: list[ReleasedWord] = []  # ... and its words
        self._num_fixed = 0  # how many words at the beginning of the text cannot be revised any more
        self._phrase_ends: list[int] = []  # length of the text at each flush, in characters
        self._before: tuple[str, list[ReleasedWord]] = ("", [])  # `_text` and `_sent` before the last change

    def feed(self, hypothesis: Hypothesis) -> None:
        words = split_words(hypothesis.text)
        self._heard_s = [
            self._heard_s[i] if i < len(self._words) and self._words[i] == word else hypothesis.time_s
            for i, word in enumerate(words)
        ]
        self._latest, self._words = hypothesis, words
        self._recent.append(words)

    def change(self, *, listener_waits: bool) -> DraftChange | None:
        """The change to make now, or None. Call it again after an answer, which may leave more to do. `listener_waits`:
        the listener waits, or is about to, so settled words must be spoken now."""
        is_final = self._latest.is_final
        sent = split_words(self._text)
        begin, _ = place_after(sent[: self._num_fixed], self._words)
        drafted, heard = sent[self._num_fixed :], self._words[begin:]
        num_same = num_common([word.strip() for word in drafted], [word.strip() for word in heard])
        appends = num_same == len(drafted)
        if not is_final and (not listener_waits if appends else num_same == len(heard)):
            return None  # nothing is needed yet, or the recognizer has only dropped the last words for the moment
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
        return DraftChange(from_char, text, appends)

    def revised(self, change: DraftChange, from_char: int, text_char: int) -> None:
        """Take the answer to a change: words of the old text before `from_char` stay."""
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
        """After a change and its answer: whether to flush the text now. If so, it is noted as flushed."""
        spoken = self._phrase_ends[-1] if self._phrase_ends else 0
        if self._latest.is_final or not self._text[spoken:].strip():
            return False
        self._phrase_ends.append(len(self._text))
        return True

    def finish(self) -> list[ReleasedWord]:
        """After a final hypothesis and all its changes: return the words that were spoken, and begin a new segment."""
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
    """Join words, with a space after each, which tells the server that it is complete, and one in front if needed.

    Characters that are words of their own get no space between them. The server's answer may leave any word out, and
    the rest must not run into the word before.
    """
    plain = [word.lstrip() for word in words]
    text = "".join(
        word if ends_in_unspaced_script(word) and ends_in_unspaced_script(after) else word + " "
        for word, after in zip(plain, [*plain[1:], "\u3000"], strict=False)
    )
    is_missing = bool(text and before) and not before[-1].isspace() and not ends_in_unspaced_script(before)
    return " " + text if is_missing else text


def _end_of(text: str, num_words: int) -> int:
    """The position where the first `num_words` words end, without the space after them."""
    end = 0
    for word in split_words(text)[:num_words]:
        end = text.index(word.strip(), end) + len(word.strip())
    return end
