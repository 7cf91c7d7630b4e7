from hypothesis import given, settings
from hypothesis import strategies as st

from service.progress import Progress
from service.pronunciations import Lexicon
from service.script import CommitMode, Script, TextPolicy
from service.sentences import certain_end, language_code

WORDS = (
    "Hello world Dr. Smith e.g. 3.5 U.S. he said \"Go. Now.\" (Yes.) yes. OK! What? ... I p.m. Tom's don't end. Then "
    "again, “Fine.” No. J. R. 今天天气很好。 我们走吧！"
)
PROSE = (
    "I don't know. Let's see what Tom's brother says. We can't go there (not now). \"Really?\" he said. She asked: "
    "\"Is it 3.5 or 4?\" Dr. Smith's office opens at 9 a.m. on Mondays. Isn't that nice? OK then. See you."
)


def script(**policy: object) -> Script:
    return Script(TextPolicy(mode=CommitMode.SENTENCE, **policy), Progress(24_000, 1.0), 10_000, Lexicon())  # type: ignore[arg-type]


def committed(text: Script) -> list[str]:
    return ["".join(segment.held) for segment in text.segments if segment.held]


def test_prose_is_cut_where_people_would() -> None:
    whole = script()
    whole.push(PROSE)
    whole.end()
    assert [sentence.strip() for sentence in committed(whole)] == [
        "I don't know.",
        "Let's see what Tom's brother says.",
        "We can't go there (not now).",
        '"Really?" he said.',
        'She asked: "Is it 3.5 or 4?"',
        "Dr. Smith's office opens at 9 a.m. on Mondays.",
        "Isn't that nice?",
        "OK then.",
        "See you.",
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=20), st.data())
def test_later_text_moves_no_cut_and_messages_do_not_matter(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    by_char, in_pieces = script(), script()
    for char in text:
        by_char.push(char)
    rest = text
    while rest:
        length = data.draw(st.integers(1, len(rest)))
        in_pieces.push(rest[:length])
        rest = rest[length:]
    for each in (by_char, in_pieces):
        each.end()
        assert "".join(committed(each)) == text
    assert committed(by_char) == committed(in_pieces)


def test_a_sentence_waits_for_two_words() -> None:
    assert certain_end("It works. ", "en") == 0
    assert certain_end("It works. Fine", "en") == 0
    assert certain_end("It works. Fine a", "en") == len("It works. ")
    assert certain_end("Ask Dr. Smith or", "en") == 0
    assert certain_end("你好。今天天气", "zh") == 3


def test_languages() -> None:
    names = ("auto", "", "German", "zh-CN", "fr")
    assert [language_code(name) for name in names] == ["en", "en", "de", "zh", "fr"]
