"""Where sentences end in a text that still grows. Pure.

`sentencex` says where; here is when to believe it. It is asked once for each place where a sentence may end, as soon as
enough of the text after that place is known, about a bounded stretch of text: so the cuts depend on the text alone and
not on how it comes in pieces, and the work stays in proportion to the text.
"""

import re
from itertools import accumulate, pairwise

import sentencex

MAX_WINDOW_CHARS = 512  # looked at together; a quotation or an aside that is longer is cut where its sentences end
# Evaluations of one sentence; each one after these waits until the sentence is half as long again.
MAX_PROMPT_EVALUATIONS = 12

# What might follow a text and move a cut in it: if none of these does, nothing that people write will. What closes a
# quotation or an aside comes first, since it is what moves most cuts.
_CONTINUATIONS = (
    '"', "”", ")", "'", "»", '" b', "' b", " a", "a", " I", " 1", " A b", " Then he", " )", ".", " .", ". .", " – a",
    " 2. B", "\n\nA",
)  # fmt: skip
# Every character that can end a sentence is an "end" here, and so is an empty line. What closes a quotation or an aside
# may settle what was doubtful before it.
_PLACE = re.compile(
    r"""(?P<end>[^\w\s,;:'"‘’“”„«»‹›()\[\]{}<>/\\@#$%&*+=~`^|\-–—…、，；：「」『』《》（）]{1,16}|\n\r?\n)|['"’”»«›)\]}>`」』》）]"""
)
# To be seen after a cut: two words, since an abbreviation and a name look like one until the word after them; four
# characters of a script without spaces; or so much that it does not matter what it is.
_TWO_WORDS = re.compile(r"\s*\S+\s+\S")
_FOUR_WIDE = re.compile(r"(?:[^\u2e80-\U0010ffff]*[\u2e80-\U0010ffff]){4}")
_MUCH_CHARS = 64
_CODES = {
    "chinese": "zh", "english": "en", "french": "fr", "german": "de", "italian": "it", "japanese": "ja",
    "korean": "ko", "portuguese": "pt", "russian": "ru", "spanish": "es",
}  # fmt: skip


def language_code(language: str) -> str:
    """For a language as SynthesisConfig has it: a name, a BCP-47 tag, "auto"."""
    name = language.lower()
    return _CODES.get(name) or ("en" if name in ("", "auto") else name.partition("-")[0])


class Sentences:
    """One text in pieces. What `push` and `rest` return, joined, is the text."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._text = ""  # from the last cut on
        self._begin_sentence("")

    def push(self, text: str) -> list[str]:
        """The sentences whose ends are certain now."""
        self._text += text
        sentences: list[str] = []
        while (known := self._next_place()) is not None:
            if ends := self._ends_within(known):
                sentences += [self._text[start:end] for start, end in pairwise((0, *ends))]
                self._begin_sentence(self._text[ends[-1] :])
        return sentences

    def rest(self) -> str:
        """What no sentence has yet; what is pushed next is another text."""
        rest = self._text
        self._begin_sentence("")
        return rest

    def _begin_sentence(self, text: str) -> None:
        self._text = text
        self._place = 0  # up to where it was looked for an end
        self._begin_window(0)

    def _begin_window(self, start: int) -> None:
        self._window = start  # of the stretch that is looked at
        self._doubtful = False  # there was a place that may prove to be an end
        self._num_evaluations = 0
        self._evaluated_chars = 0

    def _next_place(self) -> int | None:
        """Up to where the text is needed to judge the next place; None if it has not come yet."""
        place = _PLACE.search(self._text, self._place)
        while place is not None and not (self._doubtful or place["end"]):
            self._place = place.end()
            place = _PLACE.search(self._text, self._place)
        if place is None:
            self._place = max(self._place, len(self._text) - 2)  # where an empty line may have begun
            return None
        enough = _enough_after(self._text, place.end())
        if not enough:
            self._place = place.start()
            return None
        self._place = place.end()
        self._doubtful = True
        return enough

    def _ends_within(self, known: int) -> list[int]:
        window = self._text[self._window : known]
        if len(window) > MAX_WINDOW_CHARS:
            # Too long to wait for what would be certain.
            *parts, _ = sentencex.segment(self._code, window)
            if parts:
                return list(accumulate(map(len, parts), initial=self._window))[1:]
            self._begin_window(self._place)
        elif self._num_evaluations < MAX_PROMPT_EVALUATIONS or 2 * len(window) >= 3 * self._evaluated_chars:
            self._num_evaluations += 1
            self._evaluated_chars = len(window)
            if end := certain_end(window, self._code):
                return [self._window + end]
        return []


def certain_end(text: str, code: str) -> int:
    """Length of the first sentence of a text to which more may be added; 0 if that could still move its end."""
    end = first_end(text, code)
    if end == len(text) or not _enough_after(text, end):
        return 0
    return end if all(first_end(text + more, code) == end for more in _CONTINUATIONS) else 0


def first_end(text: str, code: str) -> int:
    """Of its first sentence, with the blank lines after it."""
    first, *others = sentencex.segment(code, text) or [""]
    end = len(first)
    for other in others:
        if first.strip() and other.strip():
            break
        first += other
        end += len(other)
    return end


def _enough_after(text: str, end: int) -> int:
    """How far a text must go to say whether a sentence ends at `end`; 0 if it does not go so far."""
    limit = end + _MUCH_CHARS
    found = (_TWO_WORDS.match(text, end, limit), _FOUR_WIDE.match(text, end, limit))
    return min((each.end() for each in found if each), default=limit if len(text) >= limit else 0)
