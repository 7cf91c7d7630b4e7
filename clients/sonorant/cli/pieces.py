"""Cuts a text file into the pieces that become files of their own: lines, paragraphs or chapters. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

EACH = ("line", "paragraph", "chapter")
MAX_PIECES = 99_999  # as their files have five digits
# Of Markdown, or as in "CHAPTER IV" and "Chapter 4: The River".
_HEADING = re.compile(r"#{1,2}\s+\S|chapter\s+([ivxlc]+|\d+|[a-z]+)\b.{0,80}$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Piece:
    number: int  # from 1
    line: int  # at which it begins, from 1
    text: str


def pieces(lines: Iterable[str], each: str, max_chars: int) -> Iterator[Piece]:
    """Yield the pieces that have a letter or digit. Holds one at a time.

    `each`: one of EACH. Paragraphs are divided by blank lines, chapters begin with a heading of Markdown or a line such
    as "Chapter 4". Raises ValueError for a piece of more than `max_chars`, and for more than MAX_PIECES.
    """
    number = 0
    for line, text in _blocks(lines, each, max_chars):
        if any(map(str.isalnum, text)):
            number += 1
            if number > MAX_PIECES:
                raise ValueError(f"line {line}: more than {MAX_PIECES} pieces; cut the file in two")
            yield Piece(number, line, text)


def _blocks(lines: Iterable[str], each: str, max_chars: int) -> Iterator[tuple[int, str]]:
    held: list[str] = []
    begin, num_chars = 1, 0
    for number, line in enumerate(lines, 1):
        if each == "line":
            ends = True
        elif each == "paragraph":
            ends = not line.strip()
        else:
            ends = _HEADING.match(line) is not None
        if ends and held:
            yield begin, "".join(held).strip()
            held, num_chars = [], 0
        if not held:
            if not line.strip():
                continue
            begin = number
        held.append(line.lstrip("# ") if each == "chapter" and ends else line)
        num_chars += len(line.rstrip("\n"))
        if num_chars > max_chars:
            shorter = " Use --each paragraph or line." if each != "line" else ""
            raise ValueError(f"line {begin}: this {each} has more than {max_chars} characters.{shorter}")
    if held:
        yield begin, "".join(held).strip()
