"""What text is taken: its length, its characters, and whether there is anything in it to say. Pure."""

import re
import unicodedata

from service.errors import InvalidField

MAX_INSTRUCTION_CHARS = 1024
WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"  # for a regular expression; see `is_wide`
_WIDE_ONE = re.compile(rf"[{WIDE}]")
_ALLOWED_CONTROLS = frozenset("\t\n\r")


def check_characters(text: str, field: str) -> None:
    """Refuse control characters: no speech comes of them, and they are how binary data looks."""
    for index, char in enumerate(text):
        if unicodedata.category(char) == "Cc" and char not in _ALLOWED_CONTROLS:
            raise InvalidField(
                field,
                f"control character U+{ord(char):04X} at position {index}; only tab and line breaks are allowed: "
                "send plain text in UTF-8",
                "CONTROL_CHARACTER",
            )


def check_length(num_chars: int, limit: int, field: str) -> None:
    if num_chars > limit:
        raise InvalidField(
            field,
            f"{num_chars} characters are over the limit of {limit}; split the text",
            "TEXT_TOO_LONG",
            {"chars": str(num_chars), "limit_chars": str(limit)},
        )


def is_speakable(text: str) -> bool:
    """Whether it has a letter or a digit of any script."""
    return any(char.isalnum() for char in text)


def is_wide(char: str) -> bool:
    """Whether it is of a script without spaces between words, or Hangul: a character is a syllable or more."""
    return bool(_WIDE_ONE.match(char))


def check_whole(text: str, limit: int, field: str) -> None:
    """The text of a request that holds all of it."""
    check_length(len(text), limit, field)
    check_characters(text, field)
    if not is_speakable(text):
        what = "the text is empty" if not text else "no letter or digit in it"
        raise InvalidField(field, f"nothing to say: {what}", "NO_SPEAKABLE_TEXT")
