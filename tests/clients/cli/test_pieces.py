"""Pieces are every line, paragraph or chapter with something to speak, with the line at which each begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.cli.batch import BatchPiece, pieces

BOOK = "# One\n\nIt began.\nIt went on.\n\n---\n\nChapter II\nIt ended.\n"


def cut(text: str, each: str, max_chars: int = 1000) -> list[BatchPiece]:
    return list(pieces(text.splitlines(keepends=True), each, max_chars))


def test_a_piece_is_a_line_a_paragraph_or_a_chapter() -> None:
    assert cut("Hello.\n\n***\n  Bye.", "line") == [BatchPiece(1, 1, "Hello."), BatchPiece(2, 4, "Bye.")]
    assert [(piece.line, piece.text) for piece in cut(BOOK, "paragraph")] == [
        (1, "# One"),
        (3, "It began.\nIt went on."),
        (8, "Chapter II\nIt ended."),
    ]
    assert [(piece.line, piece.text) for piece in cut(BOOK, "chapter")] == [
        (1, "One\n\nIt began.\nIt went on.\n\n---"),
        (8, "Chapter II\nIt ended."),
    ]


@given(st.text(st.sampled_from("ab #\n-"), max_size=60), st.sampled_from(("line", "paragraph", "chapter")))
def test_no_letter_is_lost(text: str, each: str) -> None:
    made = cut(text, each)
    assert [c for piece in made for c in piece.text if c.isalnum()] == [c for c in text if c.isalnum()]
    assert [piece.number for piece in made] == list(range(1, len(made) + 1))


def test_what_is_too_long_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"^line 2: this line has more than 5 characters\.$"):
        cut("short\nlonger\n", "line", 5)
    with pytest.raises(ValueError, match=r"^line 1: this chapter has more than 5 .* Use --each paragraph or line"):
        cut("one\ntwo\nthree", "chapter", 5)
