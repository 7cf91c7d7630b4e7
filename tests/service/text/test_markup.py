"""Markdown and SSML: the tables of docs/text.md, any cutting, positions, and what is meant to break readers."""

import ast
import itertools
import random
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sonorant.service.errors import InvalidField
from sonorant.service.text.directions import Directions
from sonorant.service.text.formats import TextFormat, WrittenAs
from sonorant.service.text.markdown import Part
from sonorant.service.text.markup import NEUTRAL
from sonorant.service.text.reading import Reading, ToSay
from sonorant.service.text.ssml import MAX_DEPTH
from tests.written_texts import lines

Said: TypeAlias = str | int | float | list[str] | list[float]
DOC = Path(__file__).parents[3].joinpath("docs/text.md").read_text(encoding="utf-8")
MARKDOWN = WrittenAs(TextFormat.MARKDOWN)
WITHOUT = WrittenAs(TextFormat.MARKDOWN, frozenset(Part))
SSML = WrittenAs(TextFormat.SSML)
DIRECTED = WrittenAs(directions=Directions(are_followed=True))
DIRECTED_MARKDOWN = WrittenAs(TextFormat.MARKDOWN, directions=Directions(are_followed=True))
MARKS = [
    *"*_~`#>-+|!&<:.1 \n[]()ab", "**", "```", "```py\n", "~~~\n", "\n\n", "](", "https://a.b", "[^1]", "&amp;", "<b>",
    "- ", "| ", "|-|\n", "1. ", "\\", "<!--", "-->", "é", "你",
    "$", "$$", "\\(", "\\)", "\\[", "\\]", "\\frac", "\\le", "{", "}", "5", "【5†", "】", "<think>", "</think>", "[1]",
]  # fmt: skip
TAGS = [
    "<p>", "</p>", "<s>", "</s>", "<break/>", '<break time="1s"/>', '<sub alias="x y">', "</sub>",
    "<speak>", "</speak>", '<say-as interpret-as="telephone">', "</say-as>", "<x:y a='b'/>", "&amp;", "&", "<!-- - -->",
    "<![CDATA[a]]>", '<prosody volume="loud">', '<prosody volume="-3dB" rate="x">', "</prosody>",
    '<prosody rate="slow">', '<prosody rate="+10%" volume="soft">',
    '<phoneme ph="haʊs">', "</phoneme>", *"ab1 .\n",
]  # fmt: skip
ANSWER = """## What you need

Here's the **short version**: use `git rebase -i`, *not* merge. See [the docs](https://git-scm.com/docs/git-rebase).

1. **Fetch** the branch.
2. Run `git rebase origin/main`
   - fix each conflict
   - run `git add`

| Step | Time |
|------|-----:|
| fetch | 2 s |

```bash
git fetch && git rebase origin/main  # **not** bold
```

> It's 2 * 3 = 6 times faster[^1] &mdash; really!

[^1]: Measured on one machine.
"""

WITHOUT_PARTS = """What you need. Here's the short version: use git rebase -i, not merge. See the docs.
1. Fetch the branch. 2. Run git rebase origin/main.
fix each conflict. run git add. It's 2 * 3 = 6 times faster — really!
Measured on one machine."""


def read(written_as: WrittenAs, text: str, cuts: Iterable[int] = ()) -> tuple[list[Said], Reading]:
    reading, parts, begin = Reading(written_as.markup), list[ToSay](), 0
    for end in (*cuts, len(text)):
        parts += reading.push(text[begin:end])
        begin = end
    return _merged([*parts, *reading.settle()]), reading


def _merged(parts: Iterable[ToSay]) -> list[Said]:
    """Strings are said; an int is a pause in ms, a float a gain in dB from there on, and a list has instructions, or
    how many times as fast as usual it goes on."""
    said, manner = list[Said](), NEUTRAL
    for part in parts:
        if part.text and part.manner != manner:
            before, manner = manner, part.manner
            said += [manner.gain_db] if manner.gain_db != before.gain_db else []
            said += [[round(manner.speed, 6)]] if manner.speed != before.speed else []
            said += [[manner.instructions or "normal"]] if manner.instructions != before.instructions else []
        said += [each for each in (part.text, part.pause_ms) if each]
    merged: list[Said] = []
    for each in said:
        if isinstance(each, str) and merged and isinstance(merged[-1], str):
            merged[-1] += each
        else:
            merged.append(each)
    return merged


def table(title: str) -> list[list[str]]:
    lines = DOC[DOC.index(title) + len(title) :].lstrip().split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_phonemes_are_not_spelled_as_english_in_another_language() -> None:
    written = 'Hola, <phoneme ph="xwan">Juan</phoneme>.'
    assert read(SSML, written)[0] == ["Hola, khwahn."]
    said, reading = read(WrittenAs(TextFormat.SSML, is_english=False), written)
    assert said == ["Hola, Juan."] and [*reading.ignored] == ["phoneme"]


@pytest.mark.parametrize("row", table("not by a partner that may come later:"), ids=lambda row: row[0])
def test_markdown(row: list[str]) -> None:
    written, said = (ast.literal_eval(cell[1:-1]) for cell in row[1:])
    assert read(MARKDOWN, written)[0] == [said]


@pytest.mark.parametrize("row", table("several breaks in a row are the first one:"), ids=lambda row: row[0])
def test_ssml(row: list[str]) -> None:
    written, said = (ast.literal_eval(cell[1:-1]) for cell in row[1:])
    assert read(SSML, written)[0] == said


@pytest.mark.parametrize("row", table("In the table, they are lists:"), ids=lambda row: row[0])
@pytest.mark.parametrize("written_as", [DIRECTED, DIRECTED_MARKDOWN], ids=["plain", "markdown"])
def test_directions(row: list[str], written_as: WrittenAs) -> None:
    written, said = (ast.literal_eval(cell[1:-1]) for cell in row[1:])
    if written_as is DIRECTED or "](" not in written:
        assert read(written_as, written)[0] == said


def test_directions_that_nobody_follows_are_told() -> None:
    said, reading = read(WrittenAs(directions=Directions(are_followed=False)), "So [softly] on [pause] [softly] we go")
    assert (said, reading.ignored) == (["So  on ", 400, "  we go"], ["[softly]"])


def test_thoughts_without_an_end_are_told() -> None:
    for text, told in (("Hi.\n<think> so they", ["<think> without </think>"]), ("<think> so</think>Hi.", [])):
        said, reading = read(MARKDOWN, text, range(1, len(text)))
        assert (said[0].strip(), reading.ignored) == ("Hi.", told)


def test_what_is_left_out() -> None:
    assert "".join(map(str, read(WITHOUT, ANSWER)[0])).split() == WITHOUT_PARTS.split()
    assert read(WITHOUT, "See https://a.b/c, or <https://d.e>. So.")[0] == ["See , or . So."]


def test_words_are_those_of_a_parser_of_whole_texts() -> None:
    said = "".join(map(str, read(MARKDOWN, ANSWER.replace("[^1]", ""))[0]))
    parser = MarkdownIt("commonmark").enable("table")
    words = list[str]()
    for token in parser.parse(ANSWER.replace("[^1]", "")):
        inside = token.children or ([token] if token.type == "fence" else [])
        words += "".join(each.content if each.type != "softbreak" else " " for each in inside).split()
    assert re.findall(r"\w+", said.replace("1. ", "").replace("2. ", "")) == re.findall(r"\w+", " ".join(words))


@given(st.lists(st.sampled_from(MARKS), max_size=30).map("".join), st.randoms(use_true_random=False), st.booleans())
@example("|1<1[ p:```-#s!)\n/", random.Random(1), False)
def test_any_cutting_of_markdown(text: str, chance: random.Random, leaves_out: bool) -> None:
    written_as = WITHOUT if leaves_out else MARKDOWN
    cuts = sorted(chance.sample(range(len(text)), chance.randint(0, len(text))))
    assert read(written_as, text, cuts)[0] == read(written_as, text)[0]


@given(
    st.lists(st.sampled_from(["[", "]", "[a]", "[a b", "[pause 5s]", "[pause]", "[1]", "[a](", "so. ", " ", "\n"])),
    st.randoms(use_true_random=False),
    st.sampled_from((DIRECTED, DIRECTED_MARKDOWN)),
)
def test_any_cutting_of_directions(parts: list[str], chance: random.Random, written_as: WrittenAs) -> None:
    text = "".join(parts)
    cuts = sorted(chance.sample(range(len(text)), chance.randint(0, len(text))))
    assert read(written_as, text, cuts)[0] == read(written_as, text)[0]


@given(st.lists(st.sampled_from(TAGS), max_size=30).map("".join), st.randoms(use_true_random=False))
def test_any_cutting_of_ssml(text: str, chance: random.Random) -> None:
    cuts = sorted(chance.sample(range(len(text)), chance.randint(0, len(text))))
    try:
        whole = read(SSML, text)[0]
    except InvalidField:
        with pytest.raises(InvalidField):
            read(SSML, text, cuts)
    else:
        assert read(SSML, text, cuts)[0] == whole


def check_answers(num_lines: int, sizes: Sequence[int] = (1, 4, 50)) -> None:
    """Nothing of what language models write is lost, however it comes."""
    chance, answers = random.Random(3), lines(num_lines)
    while text := "\n".join(itertools.islice(answers, 40)):
        cuts = sorted(chance.sample(range(len(text)), len(text) // chance.choice(sizes)))
        assert read(WITHOUT, text, cuts)[0] == read(WITHOUT, text)[0]
        said, reading = read(MARKDOWN, text, cuts)
        assert said == read(MARKDOWN, text)[0]
        lost = set(re.findall(r"[a-z]{4,}", text)) - set(re.findall(r"[a-z]{4,}", reading.said(text)))
        assert lost <= {"python", "https", "class"}, "of a fence, an address and a tag; all else is said"


def test_answers_of_language_models_are_read_the_same_in_any_cutting() -> None:
    check_answers(400)


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.timeout(900)
def test_a_hundred_thousand_lines_of_answers() -> None:
    check_answers(100_000, (4, 8, 50))


@given(st.text(), st.sampled_from((MARKDOWN, WITHOUT)))
def test_any_text_is_read(text: str, written_as: WrittenAs) -> None:
    said, reading = read(written_as, text)
    assert reading.said(text) == "".join(map(str, said))


@given(st.lists(st.sampled_from(MARKS), max_size=30).map("".join), st.data())
def test_words_keep_their_places(text: str, data: st.DataObject) -> None:
    said, reading = read(MARKDOWN, text)
    whole, begin_before = "".join(map(str, said)), 0
    for word in re.finditer(r"\S+", whole):
        begin, end = reading.written_begin(word.start()), reading.written_end(word.end())
        assert begin_before <= begin < end <= len(text)
        begin_before = begin
        if word[0].isalpha() and "&" not in text:
            assert set(word[0]) <= set(text[begin:end])
    at = data.draw(st.integers(0, len(text)))
    assert whole.startswith(reading.again(text[:at]).said(text[:at]))


@pytest.mark.parametrize(("rate", "speed"), [
    ("x-fast", 2.0), ("medium", 1.0), ("75%", 0.75), ("1.25", 1.25), ("400%", 2.0), ("0%", 0.5), ("+20%", 0.96),
    ("-25%", 0.6), ("+900%", 2.0), ("-100%", 0.5), (" 90% ", 0.9),
])  # fmt: skip
def test_rates(rate: str, speed: float) -> None:
    said, reading = read(SSML, f'<prosody rate="80%">a <prosody rate="{rate}">b</prosody></prosody>')
    assert said == [[0.8], "a ", [speed], "b"] and not reading.ignored


@pytest.mark.parametrize("rate", ["quick", "-1", "+0.5", "5%%", "1e9", "²", "1000%"])
def test_what_is_no_rate(rate: str) -> None:
    said, reading = read(SSML, f'<prosody rate="{rate}">a</prosody>')
    assert (said, reading.ignored) == (["a"], ["prosody rate"])


def test_places_in_what_is_said_otherwise() -> None:
    text = 'a **bold** &amp; <sub alias="World Wide">WW</sub>'
    _, reading = read(SSML, text)
    said = reading.said(text)
    at = said.index("World")
    assert text[reading.written_begin(at) : reading.written_end(at + 5)] == '<sub alias="World Wide">'
    at = said.index("&")
    assert text[reading.written_begin(at) : reading.written_end(at + 1)] == "&amp;"


@pytest.mark.parametrize(("first", "rest", "said"), [
    ("**Sure.**", " Next", ["Sure. Next"]),
    ("Sure. **", "Next** one", ["Sure. Next one"]),
    ("-", " item\n", ["item.\n"]),
    ("``", "`py\nx\n```\n", ["\nx\n\n"]),
    ("42", " it is", ["42 it is"]),
    ("see [this](htt", "p://x) ok", ["see this(http://x) ok"]),
])  # fmt: skip
def test_a_pause_in_the_text_loses_nothing(first: str, rest: str, said: list[str]) -> None:
    reading = Reading(MARKDOWN.markup)
    parts = reading.push(first) + reading.settle() + reading.push(rest) + reading.settle()
    assert _merged(parts) == said
    again = reading.again(first + rest)
    assert again.said(first + rest) == reading.said(first + rest)


@pytest.mark.parametrize("text", [
    "[" * 5000, "](" * 3000, "*" * 5000, "`" * 5000, "<a href=" * 1000, "> " * 3000, "&a" * 3000,
    "|" * 5000, "[^" * 3000, "<!--" * 2000, "- " * 3000, "**a " * 2000, "```\n" * 2000, "\\" * 5000,
    "[a](" + "(" * 5000, "h" * 5000, "https://" * 1000, "|-" * 3000, "\n" * 5000, " " * 5000,
    "[a" * 3000, "[a b]" * 1500, "[pause 5" * 1000, "[a " + "b" * 5000,
    "$x" * 2500, "$1=" * 2000, "$$a" * 2000, "\\(" * 2500, "\\(\\a{}^_" * 1000, "$" * 5000,
])  # fmt: skip
@pytest.mark.parametrize("written_as", [WITHOUT, DIRECTED, DIRECTED_MARKDOWN], ids=["markdown", "directed", "both"])
def test_attacks_take_time_in_proportion(text: str, written_as: WrittenAs) -> None:
    reading = Reading(written_as.markup)
    begin_s = time.thread_time()
    most = 0
    for at in range(0, len(text), 8):
        reading.push(text[at : at + 8])
        most = max(most, len(reading.held))
    assert most <= 4500
    assert time.thread_time() - begin_s < 10, "a word of the attack may take as long as a word of speech"


@pytest.mark.parametrize("text", [
    "<" + "a" * 100, "<break " + 'a="b" ' * 17 + "/>", '<sub alias="' + "x" * 2000 + '">', "<p", "<p a",
    "<!DOCTYPE x [",
    "<s>" * (MAX_DEPTH + 1), "<1>", "</>", "<" + "a" * 60, "<p a=b>", '<p a="<">',
])  # fmt: skip
def test_ssml_that_is_none_is_refused_or_ends_unsaid(text: str) -> None:
    reading = Reading(SSML.markup)
    try:
        said = reading.push(f"so {text}") + reading.settle()
    except InvalidField as error:
        assert error.reason == "SSML_INVALID"
        return
    assert _merged(said) == ["so "]
    assert reading.ignored == [text], "what is not closed is told"


def test_entities_stand_for_no_more_than_a_character() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;">]><speak>&b;</speak>'
    with pytest.raises(InvalidField):
        read(SSML, bomb)
    assert read(SSML, "<speak>&b;</speak>")[0] == ["&b;"]
    assert read(SSML, "&#7;&#10;a")[0] == [" a"], "no control characters come in this way"


FORMULAS = {
    "The area is $\\pi r^2$; *so* \\(E = mc^2\\).": "The area is pi r²; so E = mc².",
    "$10\\%$, $2x + 3 = 7$, $5$, $2x$, $AB$ or $-x$": "10%, 2x + 3 = 7, 5, 2x, AB or −x",
    "$$\nx = \\frac{-b \\pm \\sqrt{b^2-4ac}}{2a}\n$$\n*So*": "\nx = −b ± √b²−4ac ÷ 2a\n\nSo",
    "\\[ \\sum_{i=1}^{n} x_i \\]": "sum i=1^n x i ",
    "\\begin{a}$\\begin{a}x&=1\\\\y\\end{a}$": "\\begin{a}x =1 y",
    "$x^23 - x^{2}$, $x^2.$ $x^2.5$": "x^23 − x², x². x^2.5",
    "$90^\\circ$, $90^{\\circ}$, $5\\,\\text{kg}$": "90°, 90°, 5 kg",
    "$$x\n\n*so*": "x\n\nso",  # never closed
    "\\(x\n*so*": "x\nso",
    "C:\\new\\times, $-5, $1,299.99, A$AP, $x": "C:\\new\\times, $-5, $1,299.99, A$AP, $x",
}


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas(text: str) -> None:
    for cuts in ((), range(1, len(text))):
        assert read(MARKDOWN, text, cuts)[0] == [FORMULAS[text]]


@pytest.mark.parametrize("text", ["It costs $5 a month", "$1,299.99 or so", "Use $HOME now", "US$ or A$ or (5$)"])
def test_nobody_waits_for_the_end_of_a_formula_that_is_none(text: str) -> None:
    reading = Reading(MARKDOWN.markup)
    for char in text:
        reading.push(char)
        assert len(reading.held) <= 9
