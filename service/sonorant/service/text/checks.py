"""Checks of text: its length, its characters, and whether there is anything to speak in it. Pure."""

import re
from collections.abc import Iterator

import regex

from sonorant.service.errors import InvalidField

MAX_INSTRUCTION_CHARS = 1024
WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"  # for a regular expression; see `is_wide`
_WIDE_ONE = re.compile(rf"[{WIDE}]")
# Letters in circles and squares are letters, too; fillers that nobody sees are none.
_SPEAKABLE = regex.compile(r"[[\p{Alphabetic}\p{N}]--\p{Default_Ignorable_Code_Point}]", regex.VERSION1)
_SIGN = regex.compile(r"[\p{Sc}\p{Sm}&@#%°§]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")  # all of category Cc but tab, line and page breaks
_SLICE_CHARS = 64  # handling this much text takes a few milliseconds at worst


def check_text(text: str, limit: int, field: str, num_before: int = 0) -> None:
    """Refuse a text that is too long with the `num_before` characters before it, and control characters: they cannot be
    spoken, and are a sign of binary data."""
    if (num_chars := num_before + len(text)) > limit:
        what_to_do = "split the text" if field == "text" else "send less"
        raise InvalidField(
            field,
            f"{num_chars} characters are over the limit of {limit}; {what_to_do}",
            "TEXT_TOO_LONG",
            {"chars": str(num_chars), "limit_chars": str(limit)},
        )
    if found := _CONTROL.search(text):
        raise InvalidField(
            field,
            f"control character U+{ord(found[0]):04X} at position {found.start()}; only tab, line and page "
            "breaks are allowed: send plain text in UTF-8",
            "CONTROL_CHARACTER",
        )


def is_speakable(text: str) -> bool:
    """Return whether the text has a letter or a digit of any script."""
    return _SPEAKABLE.search(text) is not None


def has_sign(text: str) -> bool:
    """Return whether the text has a sign that is usually said, such as & or =."""
    return _SIGN.search(text) is not None


def is_wide(char: str) -> bool:
    """Return whether a character is of a script without spaces, or Hangul: each is a syllable or more."""
    return bool(_WIDE_ONE.match(char))


def check_whole(text: str, limit: int, field: str) -> None:
    """Check the text of a request that has all of it."""
    check_text(text, limit, field)
    if not is_speakable(text):
        what = "the text is empty" if not text else "no letter or digit in it"
        raise InvalidField(field, f"nothing to say: {what}", "NO_SPEAKABLE_TEXT")


def slices(text: str) -> Iterator[str]:
    """Cut a text into pieces, so that others get their turn on the event loop in between. Yields at least one."""
    for start in range(0, max(1, len(text)), _SLICE_CHARS):
        yield text[start : start + _SLICE_CHARS]
