"""Finds the ends of sentences in a text that still grows. Pure.

`sentencex` finds the ends; this module decides when its answer is final. It is asked once for each place where a
sentence may end, as soon as enough text after that place is known, about a bounded stretch of text. So the cuts depend
only on the text, not on how it comes in pieces, and the work is proportional to the text.
"""

import re
import tomllib
from collections.abc import Mapping
from itertools import accumulate, pairwise
from pathlib import Path

import sentencex

MAX_WINDOW_CHARS = 512  # given to `sentencex` at once; a longer quotation or aside is cut at its own sentences
# Evaluations of one sentence; after these, each waits until the sentence has grown by half.
MAX_PROMPT_EVALUATIONS = 12

# Texts that might follow and move a cut: if none of these moves it, nothing that people write will. Those that close a
# quotation or an aside come first, since they move most cuts.
_CONTINUATIONS = (
    '"', "”", ")", "'", "»", '" b', "' b", " a", "a", " I", " 1", " A b", " Then he", " )", ".", " .", ". .", " – a",
    " 2. B", "\n\nA",
)  # fmt: skip
# Every character that can end a sentence is an "end" here, and so is an empty line. A closing quote or bracket may
# settle a doubtful end before it.
_PLACE = re.compile(
    r"""(?P<end>[^\w\s,;:'"‘’“”„«»‹›()\[\]{}<>/\\@#$%&*+=~`^|\-–—…、，；：「」『』《》（）]{1,16}|\n\r?\n)|['"’”»«›)\]}>`」』》）]"""
)
# Text needed after a cut: two words, since an abbreviation and a name look like an end until the word after them; four
# characters of a script without spaces; or 64 characters of any kind.
_TWO_WORDS = re.compile(r"\s*\S+\s+\S")
_FOUR_WIDE = re.compile(r"(?:[^\u2e80-\U0010ffff]*[\u2e80-\U0010ffff]){4}")
_MUCH_CHARS = 64
# A mark that ends sentences, in any script, and what may stand between it and the blank after it.
_AT_END = re.compile(r"""[.!?…‥‼⁇⁈⁉‽。．！？｡؟۔।॥։።፧፨᙮។៕၊။᠃᠉߹܀꓿꘎]['"’”»›)\]}」』》）]*(?:[\s\u00a0\u202f][»›])?\s*\Z""")
# Where a sentence with such a mark is complete: before a blank, which scripts without blanks do not write.
_AFTER_MARK = re.compile(r"[\s。！？｡]\Z")
# A "." may belong to a number, an initial or an ellipsis, whatever follows.
_DOUBTFUL = re.compile(r"(?:\d|\b\w|\.)\.[^\w\s]*\s*\Z|…\s*\Z")
_ABBREVIATIONS: Mapping[str, Mapping[str, frozenset[str]]] = {
    code: {kind: frozenset(abbreviated.split()) for kind, abbreviated in kinds.items()}
    for code, kinds in tomllib.loads(Path(__file__).with_name("abbreviations.toml").read_text(encoding="utf-8")).items()
}
AUTO = "auto"  # in place of a language's code: the text may be in any
_OF_AUTO = {
    kind: frozenset().union(*(kinds[kind] for kinds in _ABBREVIATIONS.values())) for kind in ("words", "numbers")
}
_BEFORE_WORD = re.compile(r"""[\s(«"'’“-]""")
_NUMBER = re.compile(r"\d|[IVX]{2}|[IVX]\b")
_WHO_SPEAKS = re.compile(r"[—–]\s?(?:[a-zà-ÿ]|\Z)")  # "—¿Sí? —dijo"
_CODES = {
    "chinese": "zh", "english": "en", "french": "fr", "german": "de", "italian": "it", "japanese": "ja",
    "korean": "ko", "portuguese": "pt", "russian": "ru", "spanish": "es",
}  # fmt: skip


def language_code(language: str) -> str:
    """Return the two-letter code of a language of SynthesisConfig, a name or a BCP-47 tag; AUTO for "" and "auto"."""
    name = language.strip().lower() or AUTO
    return _CODES.get(name) or re.split("[-_]", name)[0]


def segment(text: str, code: str) -> list[str]:
    """Cut a text behind its sentences, as well as can be said without the text after it."""
    parts = list[str]()
    abbreviated = _OF_AUTO if code == AUTO else _ABBREVIATIONS.get(code)
    for part in sentencex.segment("en" if code == AUTO else code, text):
        if parts and abbreviated and _goes_on(parts[-1][-_MUCH_CHARS:], part[:3], abbreviated):
            parts[-1] += part
        else:
            parts.append(part)
    return parts


def _goes_on(before: str, after: str, abbreviated: Mapping[str, frozenset[str]]) -> bool:
    """Whether a sentence goes on where `sentencex` ends it."""
    last = before.rstrip()
    if _WHO_SPEAKS.match(after):
        return "\n" not in before[len(last) :]
    if not last.endswith(".") or before.count("\n", len(last)) > 1:
        return False
    word = _BEFORE_WORD.split(last[:-1])[-1]
    if (lower := word.lower()) in abbreviated["words"]:
        return True
    if lower in abbreviated["numbers"] and _NUMBER.match(after):
        return True
    end = word.rpartition(".")[2]  # of "a.C", "C"
    if last == before:  # "n.º", "a.C.", "J.-P."
        return end.isalpha() and len(end) <= 2 and (after[0].isalnum() or after[0] == "-")
    if len(word) == 1 and word.isupper() and after[0].isupper():  # "D. Juan", "M. Dupont"
        return True
    # A short word before one that begins no sentence: "p. ex. a", "EE. UU. es". People write English in lower case.
    return abbreviated is not _OF_AUTO and end.isalpha() and len(end) <= 4 and after[0].islower()


def ends_sentence(text: str) -> bool:
    """Whether a text ends with the mark of a sentence, as far as that can be said without the text after it."""
    return bool(_AT_END.search(text[-_MUCH_CHARS:]))


def is_complete(text: str, code: str) -> bool:
    """Whether a text ends with a whole sentence, and whatever follows is most likely another one."""
    end = text[-MAX_WINDOW_CHARS:]
    may_be = ends_sentence(end) and _AFTER_MARK.search(end) and not _DOUBTFUL.search(end)
    return bool(may_be) and begins_sentence(end, "A", code)


def begins_sentence(before: str, char: str, code: str) -> bool:
    """Whether a sentence begins with a character that comes after a mark: not if the mark is an abbreviation's."""
    *_, last = segment(before + char, code)
    return last.strip() == char


class Sentences:
    """Cuts a text that comes in pieces. What `push` and `rest` return, joined, is the text."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._text = ""  # from the last cut on
        self._begin_sentence("")

    def push(self, text: str) -> list[str]:
        """Add text and return the sentences whose ends are certain now."""
        self._text += text
        sentences: list[str] = []
        while (known := self._next_place()) is not None:
            if ends := self._ends_within(known):
                sentences += [self._text[start:end] for start, end in pairwise((0, *ends))]
                self._begin_sentence(self._text[ends[-1] :])
        return sentences

    @property
    def held(self) -> str:
        """The text after the last cut."""
        return self._text

    def rest(self) -> str:
        """Return the text after the last cut. What is pushed next is another text."""
        rest = self._text
        self._begin_sentence("")
        return rest

    def _begin_sentence(self, text: str) -> None:
        self._text = text
        self._place = 0  # searched for ends up to here
        self._begin_window(0)

    def _begin_window(self, start: int) -> None:
        self._window = start  # where the stretch for `sentencex` begins
        self._doubtful = False  # whether the stretch has a place that may turn out to be an end
        self._num_evaluations = 0
        self._evaluated_chars = 0

    def _next_place(self) -> int | None:
        """Return how much of the text is needed to judge the next place, or None if that text has not come yet."""
        place = _PLACE.search(self._text, self._place)
        while place is not None and not (self._doubtful or place["end"]):
            self._place = place.end()
            place = _PLACE.search(self._text, self._place)
        if place is None:
            self._place = max(self._place, len(self._text) - 2)  # an empty line may have begun there
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
            # Too long to wait for a certain end.
            *parts, _ = segment(window, self._code)
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
    """Return the length of the first sentence of a growing text, or 0 if later text could still move its end."""
    end = first_end(text, code)
    if end == len(text) or not _enough_after(text, end):
        return 0
    return end if all(first_end(text + more, code) == end for more in _CONTINUATIONS) else 0


def first_end(text: str, code: str) -> int:
    """Return the end of the first sentence, with the blank lines after it."""
    first, *others = segment(text, code) or [""]
    end = len(first)
    for other in others:
        if first.strip() and other.strip():
            break
        first += other
        end += len(other)
    return end


def _enough_after(text: str, end: int) -> int:
    """Return how much of the text is needed to judge whether a sentence ends at `end`; 0 if it is not there yet."""
    limit = end + _MUCH_CHARS
    found = (_TWO_WORDS.match(text, end, limit), _FOUR_WIDE.match(text, end, limit))
    return min((each.end() for each in found if each), default=limit if len(text) >= limit else 0)
