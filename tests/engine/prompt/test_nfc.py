import sys
import unicodedata

import pytest
from hypothesis import given, settings

from sonorant.engine.prompt import nfc
from sonorant.engine.prompt.nfc import NfcStream, normalize
from tests.engine.prompt.texts import cut_texts


def test_composing_pairs_are_those_of_all_unicode() -> None:
    firsts, seconds = set(), set()
    for code in range(sys.maxunicode + 1):
        decomposed = unicodedata.normalize("NFD", chr(code))
        if len(decomposed) > 1 and unicodedata.normalize("NFC", decomposed) == chr(code):
            last = decomposed[-1]
            first = unicodedata.normalize("NFC", decomposed[:-1])
            if len(first) == 1:
                firsts.add(first)
                seconds.add(last)
    hangul_syllables = {c for c in firsts if "\uac00" <= c <= "\ud7a3"}  # handled by arithmetic
    assert firsts - hangul_syllables == nfc._FIRSTS
    assert seconds == nfc._SECONDS


@given(cut_texts())
@settings(max_examples=200)
def test_any_cutting_gives_the_nfc_of_the_whole(pieces: list[str]) -> None:
    stream = NfcStream()
    assert "".join(map(normalize, [*map(stream.push, pieces), stream.flush()])) == normalize("".join(pieces))


@pytest.mark.slow
@pytest.mark.parametrize("code_range", [range(0x20, 0x3200), range(0xAC00, 0xB000), range(0x11000, 0x11A00)])
def test_no_character_is_let_go_too_early(code_range: range) -> None:
    """Each character before each mark that composes with anything."""
    seconds = sorted(nfc._SECONDS)
    for code in code_range:
        stream = NfcStream()
        closed = stream.push(chr(code))
        if closed:
            assert all(normalize(chr(code) + second) == normalize(closed) + normalize(second) for second in seconds)


@pytest.mark.parametrize("text", ["5", ".", " ", "中", "각", "ん", "😀", "\u2000"])
def test_what_composes_with_nothing_is_not_held(text: str) -> None:
    assert NfcStream().push(text) == text


@pytest.mark.parametrize("text", ["e", "é", "가", "\u1100", "か", "=", "²"])
def test_what_may_compose_is_held_until_the_next_character(text: str) -> None:
    stream = NfcStream()
    assert stream.push(text) == ""
    assert stream.push(".") == text + "."


def test_flush_starts_afresh() -> None:
    stream = NfcStream()
    assert stream.push("cafe") + stream.flush() == "cafe"
    assert stream.push("\u0301 ") == "\u0301 "
