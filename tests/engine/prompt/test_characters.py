"""Characters that a checkpoint was not trained on are folded to those it knows, however the text is cut."""

import sys
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sonorant.engine.prompt.characters import GAP, FoldedStream, gives_letters, lost_words, said
from sonorant.engine.prompt.explain import changes_of
from sonorant.engine.prompt.nfc import normalize
from sonorant.engine.prompt.tokenizer import Tokenizer, TokenOffsets, TokenStream
from tests.engine.prompt.texts import cut_texts, texts

# Relatives of the table in docs/text.md, by its kinds.
RELATIVES = {
    "units": ("5 μg of μου, 10Ω, Ω, ٣ μs ㎢ ㏄", "5 micro g of moy, 10 ohm, O, 3 micro s km squared cc"),
    "ciphers": ("5❶ ⓵a ➀ ١٬٠٠٠٫٥ ➓", "5 1 1 a 1 1,000.5 10"),
    "marks": ("5️⃣ 1⃣ h̷e̷y 1̲2̲ so† and‡ so", "5 1 hey 12 so and so"),
    "unseen": ("\u202eab\u202c\u2067c\u2069 👩🏽\u200d💻do\u200dne🏳️\u200d🌈 🇩🇪", "abc done"),
    "powers": (
        "10¹² 10⁻³ x² x²y³ 5² c²™ 2³²",
        "10 to the 12 10 to the minus 3 x squared x squared y cubed 5 squared c squared 2 to the 32",
    ),
    "exponents": (
        "m·s⁻¹ mol⁻¹ 2ⁿ xⁿ⁺¹ (a+b)⁴ 10⁶kg",
        "m s to the minus 1 mol to the minus 1 2 to the n x to the n plus 1 a plus b to the 4 10 to the 6 kg",
    ),
    "charges, notes": (
        "Ca²⁺ SO₄²⁻ Cl⁻ note¹² note²³ 2020¹ f⁽²⁾",
        "Ca 2 plus SO 4 2 minus Cl- note 12 note 23 2020 1 f 2",
    ),
    "fractions": ("½ 1½ ¾-inch 5⅔% 1⁄2", "one half 1 and one half three quarters-inch 5 and two thirds% 1 slash 2"),
    "raised": ("ʰᵉˡˡᵒ ₕₑ 5ᵗʰ 2ⁿᵈ 🅷🅘 ℍ𝓲 Ĳ", "hello he 5th 2nd HI Hi IJ"),
    "Greek of mathematics": ("𝛂𝛃 𝝮 𝞈=𝟐𝛑 𝛓 𝛜 α", "alpha beta omega omega equals 2 pi sigma epsilon a"),
    "signs between words": (
        "x = 5 a==b x^2 (x)^-2 2*3 2 ** 3 1/2 ~$5 ~5 #1 R&D C++ C# 2+2 5<6 a < b a >= b",
        "x equals 5 a equals b x to the 2 x to the -2 2 times 3 2 to the 3 1 slash 2 about $5 about 5 number 1 R and D "
        "C plus plus C sharp 2 plus 2 5 less than 6 a less than b a at least b",
    ),
    "signs of other kinds": (
        "*so* **so** 5* hotel `so` _a b_ a|b and/or <w> </w> {x} [y] C:\\d a -> b List<int> ==== # so ~ so #so",
        "so so 5 hotel so a b a b and or w w x y C: d a - b List int so so so",
    ),
    "signs in full width, of mathematics": (
        "２＋２＝４ Ａ＆Ｂ 3∕4 2∗3 ＃1",
        "2 plus 2 equals 4 A and B 3 slash 4 2 times 3 number 1",
    ),
    "signs before the first word": ("...-- !!!So ...so", "So ...so"),
    "a number that begins": ("-.5 !!5 -5", "-.5 !!5 -5"),
    "brackets": ("so (a)(b) f(x) [1] (no) (555) 12 :)", "so a b f x 1 no 555 12 :"),
    "hyphens between numbers": (
        "2024-05-06 10-12 555-0199 5-inch -5 A-1 3- 2-",
        "2024 05 06 10 12 555 0199 5-inch -5 A-1 3- 2",
    ),
    "numbers before letters": (
        "10km 5pm 1.5MB H2O 2x 1st 2nd 3rd 4th 1990s",
        "10 km 5 pm 1.5 MB H2 O 2 x 1st 2nd 3rd 4th 1990s",
    ),
    "quotes": ("‘so’ ‚so‛ ‹so› „so‟ 〝so〞 ＂so＂ `so´", "'so' 'so' 'so' \"so\" \"so\" \"so\" so'"),
    "apostrophes": ("donʼt don＇t don′t ʻokina rock’n’roll", "don't don't don't 'okina rock'n'roll"),
    "dashes": ("a–b a‒b a―b a⸺b a﹘b a－b a‐b a﹣b", "a-b a-b a - b a - b a - b a-b a-b a-b"),
    "ellipses": ("a…b ⋯ ︙ ‥", "a...b ..."),
    "blanks": ("a\u2009b\u205fc\u1680d\x85e\x0bf\x0cg\rh\u2800i", "a b c d e f g h i"),
    "compatible": ("ｆｕｌｌ ﬃ ﬂ 𝓈ℴ 𝔰𝔬 𝕤𝕠 ㎏ ℡", "full ffi fl so so so kg TEL"),
    "enclosed": ("⒜⒝ ⓐⓑ 🄰🄱 🅐🅑", "a b ab AB AB"),
    "numbers": ("x³ x⁴⁵ ab⁴⁵ a₁₂ H₂O ②x ⑩ ㈢", "x cubed x to the 45 ab 45 a 12 H 2 O 2 x 10 san"),
    "roman numerals": ("Ⅳ, Henry Ⅷ; ⅻ ↇ", "4, Henry 8; 12 50000"),
    "accents": ("àéîõü ẵ e\u0301\u0327 Ç ş ů x\u20d7", "aeiou a e C s u x"),
    "letters": ("øßþđıłœŋſ ŉ ʜɪ", "ossthdiloengs 'n hi"),
    "scripts": ("Ελλάδα ქართული हिन्दी ไทย 안녕 ひらがな", "Ellada kartuli hindi aithy annyeong hiragana"),
    "signs of romanization": ("عليكم ʻain ʔa ʕ ↁↂ ৹ 𐩽 5ↇ ma˥˩", "'lykm 'ain 'a ' 5000 10000 16 1 5 50000 ma"),
    "stops": ("好！好？好；好，好｡ ؛ ‼ ⁇", "hao! hao? hao; hao, hao. ; !! ??"),
    "currencies": ("₩5 ₿5 ₴5 ￡5 5€", "won 5 bitcoin 5 hryvnia 5 pound 5 5 euro"),
    "symbols": (
        "§5 ±5 ‰ № 6÷2 µm ∞ 5∶30",
        "section 5 plus or minus 5 per mille number 6 divided by 2 micro m infinity 5:30",
    ),
    "runs of marks": (
        "No!!!!!! What?!?!?! Well....... so……on --- a----b ---- !!1!",
        "No!!! What?!? Well... so...on -- a--b -- !!1!",
    ),
    "forms of signs": ("2∗3 1⁄2 1∕2 x ≡ y x＝y ∼5", "2 times 3 1 slash 2 1 slash 2 x equals y x equals y about 5"),
    "no signs": ("Home → Menu ⇒ Log in ➜ a ≢ b ⇆ c ≮ d ⌘5 █5 5〜6", "Home Menu Log in a b c d 5 5 5 - 6"),
    "emoji": ("a🎉b ☃ 👩🏽‍🚀 🇫🇷 ✅ ♥\ufe0f ► ™ c©d", "a b c d"),
    "unheard": ("a\u200c\u200e\u2066\ufff9\U000e0001\U000f0000\u0378\x00\x9fb", "ab"),
}


@pytest.fixture(scope="module")
def ascii_tokenizer(small_tokenizer: Tokenizer) -> Tokenizer:
    return Tokenizer(small_tokenizer._bpe, "ascii")


@pytest.fixture(scope="module")
def western_tokenizer(small_tokenizer: Tokenizer) -> Tokenizer:
    return Tokenizer(small_tokenizer._bpe, "western")


@pytest.mark.parametrize("kind", RELATIVES)
def test_relatives_that_no_list_has(ascii_tokenizer: Tokenizer, kind: str) -> None:
    written, given = RELATIVES[kind]
    assert ascii_tokenizer.given(written) == given


def test_every_character_is_folded_to_printable_ascii() -> None:
    """Of a million that mean nothing or are for private use, one in 251."""
    for code in range(sys.maxunicode + 1):
        if code % 251 and unicodedata.category(chr(code)) in ("Cn", "Co"):
            continue
        given = said(chr(code))
        assert all(char == GAP or (char.isascii() and char.isprintable()) for char in given), hex(code)
        if chr(code).isascii() and chr(code).isprintable():
            assert given == chr(code) or chr(code) in "#&()*+/<=>[\\]^_`{|}~", chr(code)
        elif unicodedata.category(chr(code))[0] in "LMN":
            assert not set(given) & set("`|^~\\_<>{}[]"), hex(code)


def test_three_languages_keep_their_letters_and_marks() -> None:
    kept = "áàéèíìñóòúùü"
    for char in f"{kept}¿¡«»º€%$":
        assert said(char, "western") == char
    for char in kept.upper():
        assert said(char, "western") in (char, char.lower())
    for char in map(chr, range(0x3000)):
        assert all(each == GAP or said(each, "western") == each for each in said(char, "western")), hex(ord(char))
        if char.isascii():
            assert said(char, "western") == said(char)


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("ا.", ["ا"]),
        ("So ا, ء and با", ["ا", "ء"]),
        ("א! ע אב", ["א", "ע"]),
        ("ь ъ объём", ["ь", "ъ"]),
        ("x𒀀𒀁 ok", ["𒀀𒀁"]),
        ("㧝你㪲", ["㧝", "㪲"]),
        ("អ អា ខ្មែរ", ["អ"]),
        ("ჸ საქ ᄋ 한", ["ჸ", "ᄋ"]),
        ("Hi 😀 ー ـ ʼ → é Ⅷ ½ 你好 안녕 ё", []),
    ],
)
def test_words_of_which_nothing_is_given_are_named(text: str, lost: list[str]) -> None:
    assert lost_words(text) == lost


@given(texts)
@example("\u0627.")
@example("\u3a5d")
def test_no_text_with_letters_is_lost_without_a_word(ascii_tokenizer: Tokenizer, text: str) -> None:
    for word in text.split():
        has_letters = any(unicodedata.category(char) != "Lm" for char in normalize(word) if char.isalnum())
        is_given = any(map(str.isalnum, ascii_tokenizer.given(word)))
        assert gives_letters(normalize(word)) == is_given
        assert is_given or bool(lost_words(word)) == has_letters, word
        assert "".join(lost_words(word)) in text.replace(" ", "") or normalize(word) != word or is_given


@given(cut_texts())
@example(["Hi\U0001f600", "there"])
@example(["e", "\u0301", " \U0001f600", " ", "x"])
def test_tokens_and_offsets_are_the_same_for_every_cutting(ascii_tokenizer: Tokenizer, pieces: list[str]) -> None:
    text = "".join(pieces)
    offsets = TokenOffsets(ascii_tokenizer)
    stream = TokenStream(ascii_tokenizer, offsets)
    ids = [each for piece in pieces for each in stream.push(piece)] + stream.end()
    assert ids == ascii_tokenizer.encode(text)
    assert b"".join(map(ascii_tokenizer.bytes_of, ids)).decode() == ascii_tokenizer.given(text)
    positions = [offsets.position_of(char) for char in range(len(text) + 1)]
    assert positions == sorted(positions) and positions[-1] == len(ids)


@given(cut_texts(), st.sampled_from([None, "spanish", "italian"]))
@example(["El 5", "\u00b0 a", " 20", "\u00b0C ", "n\u0303", " 20h", "30 2", "\u00b2", "\u00b3"], None)
def test_cutting_makes_no_difference_where_words_have_a_language(
    western_tokenizer: Tokenizer, pieces: list[str], language: str | None
) -> None:
    text = "".join(pieces)
    offsets = TokenOffsets(western_tokenizer, language)
    stream = TokenStream(western_tokenizer, offsets, language)
    ids = [each for piece in pieces for each in stream.push(piece)] + stream.end()
    assert ids == western_tokenizer.encode(text, language)
    plain = TokenStream(western_tokenizer, None, language)
    assert [each for char in text for each in plain.push(char)] + plain.end() == ids
    positions = [offsets.position_of(char) for char in range(len(text) + 1)]
    assert positions == sorted(positions) and positions[-1] == len(ids)
    given = western_tokenizer.given(text, language)
    assert "  " not in given and western_tokenizer.given(given, language) == given


@given(texts)
def test_what_is_given_is_ascii_without_runs_of_blanks(ascii_tokenizer: Tokenizer, text: str) -> None:
    given = ascii_tokenizer.given(text)
    assert given.isascii() and "  " not in given and given == given.strip()
    assert FoldedStream("ascii", "english").push(given) == given, "what a checkpoint knows stays as it is"


def test_numbers_stay_apart_from_numbers_of_other_kinds(ascii_tokenizer: Tokenizer) -> None:
    """In circles, as superscripts, as fractions, of any script: "5❶" is not 51."""
    others = [char for char in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(char) == "No"]
    assert len(others) > 800
    for char in others:
        given = ascii_tokenizer.given(f"5{char}")
        assert given[0] == "5" and not given[1:2].isalnum(), (char, given)


@given(texts)
def test_the_changes_make_what_is_given(ascii_tokenizer: Tokenizer, text: str) -> None:
    parts: list[str] = []
    end = 0
    for change in changes_of(text, ascii_tokenizer):
        assert text[change.start : change.end] == change.written != change.given
        parts += [text[end : change.start], change.given]
        end = change.end
    assert "".join([*parts, text[end:]]).strip() == ascii_tokenizer.given(text)


def test_changes_are_told_with_their_place(ascii_tokenizer: Tokenizer) -> None:
    changes = changes_of("I\u2019m\U0001f600here, cafe\u0301", ascii_tokenizer)
    assert [(c.start, c.end, c.written, c.given) for c in changes] == [
        (1, 2, "\u2019", "'"),
        (3, 4, "\U0001f600", " "),
        (13, 15, "e\u0301", "e"),
    ]


@given(texts)
def test_a_checkpoint_that_knows_all_gets_the_text_as_it_is(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.given(text) == normalize(text).strip()
    assert all(normalize(change.written) == change.given for change in changes_of(text, tokenizer))


def test_words_keep_their_offsets_in_the_written_text(ascii_tokenizer: Tokenizer) -> None:
    written = "\ufeff\u201cIt\u2019s\u201d\u2014well\u2026\n\n\U0001f600 5\u00bd na\u00efve"
    offsets = TokenOffsets(ascii_tokenizer)
    stream = TokenStream(ascii_tokenizer, offsets)
    ids = stream.push(written) + stream.end()
    spelled = [ascii_tokenizer.text_of(token_id) for token_id in ids]
    ends = [len("".join(spelled[:n])) for n in range(len(ids) + 1)]
    given = ascii_tokenizer.given(written)
    for word, plain in (("It", "It"), ("well", "well"), ("na\u00efve", "naive")):
        place = given.index(plain)
        token = next(n for n, (a, b) in enumerate(pairwise(ends)) if a <= place < b)
        assert int(offsets.position_of(written.index(word))) == token


def test_the_database_of_python_is_new_enough() -> None:
    """An older one knows fewer characters, and would leave them out."""
    assert tuple(map(int, unicodedata.unidata_version.split("."))) >= (14,)
