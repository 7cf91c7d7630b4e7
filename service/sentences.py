"""Where sentences end in a text that still grows. Pure."""

import sentencex

# What might follow a text and move a cut in it: if none of these does, nothing that people write will.
_CONTINUATIONS = (
    " a", "a", " I", " 1", " A b", " Then he", '"', "'", ")", "”", "»", " )", '" b', "' b", ".", " .", ". .", " – a",
    " 2. B", "\n\nA",
)  # fmt: skip
_WORDS_AFTER = 2  # to be seen after a cut; an abbreviation and a name look like one until the word after them
_CHARS_AFTER = 4  # the same for scripts without spaces
_CODES = {
    "chinese": "zh", "english": "en", "french": "fr", "german": "de", "italian": "it", "japanese": "ja",
    "korean": "ko", "portuguese": "pt", "russian": "ru", "spanish": "es",
}  # fmt: skip


def language_code(language: str) -> str:
    """For a language as SynthesisConfig has it: a name, a BCP-47 tag, "auto"."""
    name = language.lower()
    return _CODES.get(name) or ("en" if name in ("", "auto") else name.partition("-")[0])


def certain_end(text: str, code: str) -> int:
    """Length of the first sentence of a text to which more may be added; 0 if that could still move its end."""
    end = _first_end(text, code)
    rest = text[end:]
    if not rest or not _is_enough(rest):
        return 0
    return end if all(_first_end(text + more, code) == end for more in _CONTINUATIONS) else 0


def _first_end(text: str, code: str) -> int:
    """Of its first sentence, with the blank lines after it."""
    first, *others = sentencex.segment(code, text) or [""]
    end = len(first)
    for other in others:
        if first.strip() and other.strip():
            break
        first += other
        end += len(other)
    return end


def _is_enough(rest: str) -> bool:
    return len(rest.split()) >= _WORDS_AFTER or sum(ord(char) >= 0x2E80 for char in rest) >= _CHARS_AFTER
