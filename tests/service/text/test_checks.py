import pytest

from sonorant.service.errors import InvalidField
from sonorant.service.text.checks import check_text, check_whole, is_speakable


@pytest.mark.parametrize("text", ["a", "7", "é", "你好", "…नमस्ते", "( x )", "½", "②", "Ⅷ", "ⓗⓘ", "🅷🅸", "🄷"])
def test_letters_and_digits_of_any_script_are_speakable(text: str) -> None:
    assert is_speakable(text)


@pytest.mark.parametrize("text", ["", " \n", "?!…", "—", "\u200b", "😀", "\u3164", "\u115f\uffa0", "\u0301"])
def test_punctuation_and_blanks_are_not(text: str) -> None:
    assert not is_speakable(text)
    with pytest.raises(InvalidField, match="nothing to say"):
        check_whole(text, 100, "text")


@pytest.mark.parametrize("char", ["\0", "\x1b", "\x7f", "\x84", "\x86"])
def test_control_characters_are_named_with_their_place(char: str) -> None:
    with pytest.raises(InvalidField, match=rf"U\+{ord(char):04X} at position 2"):
        check_text(f"ab{char}", 9, "text")


def test_what_came_before_counts() -> None:
    check_text("a" * 400, 1000, "text", 600)
    with pytest.raises(InvalidField, match="1001 characters are over the limit of 1000"):
        check_text("a" * 401, 1000, "text", 600)


def test_breaks_tabs_and_joiners_are_fine() -> None:
    check_text("a\tb\r\nc\u200dd\ufeff\fe\vf\x85g\u2028h", 20, "text")


def test_length_counts_code_points() -> None:
    check_whole("é" * 10, 10, "text")
    with pytest.raises(InvalidField, match="11 characters are over the limit of 10"):
        check_whole("é" * 11, 10, "text")
