"""Decides which words of a recognizer's changing hypotheses may be spoken: those that will not change any more. Pure.

Spoken words cannot be taken back, so a word waits until three conditions hold:

* it is settled: the recognizer says so (`min_stability`), or, if it gives no stability, its last `agreement` hypotheses
  had the same words up to there;
* it is complete: another word follows it;
* it does not depend on what follows, as numbers and abbreviations do (`words.may_grow`).

A final hypothesis releases everything. If it, or a later partial one, contradicts words that were spoken already,
speech continues after the place that fits the spoken words best; nothing is repeated.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.words import key, may_grow, split_words

DEFAULT_MIN_STABILITY = 0.8
DEFAULT_AGREEMENT = 8


@dataclass(frozen=True, slots=True)
class ReleasedWord:
    text: str  # with the space before it: joined, the released words of a segment are the text to speak
    heard_s: float  # since when the hypotheses have this word at this place
    released_s: float

    @property
    def delay_s(self) -> float:
        return self.released_s - self.heard_s


class CommitPolicy:
    """Takes one stream of hypotheses and releases words to speak."""

    def __init__(self, *, min_stability: float = DEFAULT_MIN_STABILITY, agreement: int = DEFAULT_AGREEMENT) -> None:
        if not 0 <= min_stability <= 1:
            raise ValueError(f"min_stability is {min_stability:g}, not within 0 to 1")
        if agreement < 1:
            raise ValueError(f"agreement is {agreement}; at least one hypothesis is needed")
        self.num_contradicted = 0  # spoken words that differ from the final hypothesis
        self._min_stability = min_stability
        self._recent: deque[list[str]] = deque(maxlen=agreement)
        self._heard_s: list[float] = []  # `ReleasedWord.heard_s` of each word of the latest hypothesis
        self._spoken: list[str] = []  # words of this segment

    def feed(self, hypothesis: Hypothesis) -> list[ReleasedWord]:
        """Take a hypothesis; return the words that may be spoken now, after those released before."""
        words = split_words(hypothesis.text)
        before = self._recent[-1] if self._recent else []
        self._heard_s = [
            self._heard_s[i] if i < len(before) and before[i] == word else hypothesis.time_s
            for i, word in enumerate(words)
        ]
        self._recent.append(words)
        begin, num_contradicted = place_after(self._spoken, words)
        end = len(words)
        if not hypothesis.is_final:
            end = min(self._num_settled(hypothesis, words), len(words) - 1)
            while end > begin and may_grow(words[end - 1]):
                end -= 1
        released = [
            ReleasedWord(word, heard_s, hypothesis.time_s)
            for word, heard_s in zip(words[begin:end], self._heard_s[begin:end], strict=True)
        ]
        self._spoken += words[begin:end]
        if hypothesis.is_final:
            self.num_contradicted += num_contradicted
            self._recent.clear()
            self._spoken.clear()
        return released

    def _num_settled(self, hypothesis: Hypothesis, words: list[str]) -> int:
        if any(part.stability is not None for part in hypothesis.parts):
            stable = ""
            for part in hypothesis.parts:
                if part.stability is None or part.stability < self._min_stability:
                    break
                stable += part.text
            return num_common(split_words(stable), words)
        if len(self._recent) < (self._recent.maxlen or 1):
            return 0
        return min(num_common(recent, words) for recent in self._recent)


def num_common(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def place_after(spoken: list[str], words: list[str]) -> tuple[int, int]:
    """Find the beginning of `words` that fits `spoken` best, the longest of equal ones; return its number of words and
    how many words differ."""
    same = num_common(spoken, words)
    keys = [key(word) for word in words[same:]]
    distances = list(range(len(keys) + 1))  # edit distances between the spoken words so far and keys[:i]
    for said in map(key, spoken[same:]):
        diagonal, distances[0] = distances[0], distances[0] + 1
        for i, heard in enumerate(keys):
            diagonal, distances[i + 1] = (
                distances[i + 1],
                min(diagonal + (said != heard), distances[i] + 1, distances[i + 1] + 1),
            )
    fewest = min(distances)
    return same + max(i for i, distance in enumerate(distances) if distance == fewest), fewest
