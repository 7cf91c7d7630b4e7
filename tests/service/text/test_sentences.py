import itertools
import re
import unicodedata

import pytest
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.service.text.sentences import AUTO, Sentences, certain_end, first_end, language_code, segment

WORDS = (
    "Hello world Dr. Smith e.g. 3.5 U.S. he said \"Go. Now.\" (Yes.) yes. OK! What? ... I p.m. Tom's don't end. Then "
    "again, “Fine.” No. J. R. 今天天气很好。 我们走吧！"
)
PROSE = (
    "I don't know. Let's see what Tom's brother says. We can't go there (not now). \"Really?\" he said. She asked: "
    "\"Is it 3.5 or 4?\" Dr. Smith's office opens at 9 a.m. on Mondays. Isn't that nice? OK then. See you."
)

LANGUAGES = (
    "Chinese",
    "English",
    "French",
    "German",
    "Italian",
    "Japanese",
    "Korean",
    "Portuguese",
    "Russian",
    "Spanish",
)


def cut(*pieces: str) -> list[str]:
    sentences = Sentences("en")
    found = [sentence for piece in pieces for sentence in sentences.push(piece)]
    return [*found, sentences.rest()]


def test_prose_is_cut_where_people_would() -> None:
    assert [sentence.strip() for sentence in cut(PROSE)] == [
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


@settings(max_examples=60)
@given(st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=20), st.data())
def test_later_text_moves_no_cut_and_messages_do_not_matter(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    pieces, rest = [], text
    while rest:
        length = data.draw(st.integers(1, len(rest)))
        pieces.append(rest[:length])
        rest = rest[length:]
    assert cut(*text) == cut(*pieces) == cut(text)
    assert "".join(cut(text)) == text


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([*"aA .?!\"'()\n\r,你。", "word " * 20, "Dr. " * 20, "好" * 70]), max_size=60), st.data()
)
def test_any_characters_are_cut_alike_however_they_come(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    whole, in_pieces = Sentences("en"), Sentences("en")
    cuts = [data.draw(st.integers(0, len(text))) for _ in range(3)]
    pieces = [text[start:end] for start, end in itertools.pairwise(sorted((0, *cuts, len(text))))]
    assert [sentence for piece in pieces for sentence in in_pieces.push(piece)] == whole.push(text)
    assert whole.rest() == in_pieces.rest()


def test_a_sentence_waits_for_two_words() -> None:
    assert certain_end("It works. ", "en") == 0
    assert certain_end("It works. Fine", "en") == 0
    assert certain_end("It works. Fine a", "en") == len("It works. ")
    assert certain_end("Ask Dr. Smith or", "en") == 0
    assert certain_end("你好。今天天气", "zh") == 3


# Each of them once held up everybody, or was built to.
HARD = {
    "short sentences": ("zh", "你好。" * 300),
    "a quotation without end": ("zh", "“" + "你好。" * 300),
    "an aside without end": ("en", "(Aa bb. " * 120),
    "abbreviations": ("en", "a.a." * 250),
    "abbreviations and names": ("en", "a. A. " * 160),
    "doubtful ends, late": ("en", ("aaa " * 110 + "e.g. " * 16) * 2),
    "paragraphs": ("en", "A\n\n" * 300),
    "an end without a beginning": ("en", "!? " * 300),
    "quotations": ("en", '"Aa bb. Cc dd." ' * 60),
    "nothing but ends": ("en", "." * 1000),
    "nothing": ("en", " " * 1000),
    "no end at all": ("en", "word " * 200),
}


@pytest.mark.parametrize("name", HARD)
def test_the_work_is_in_proportion_to_the_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = HARD[name]
    looked_at, split = 0, sentencex.segment

    def segment(code: str, text: str) -> list[str]:
        nonlocal looked_at
        looked_at += len(text)
        return split(code, text)

    monkeypatch.setattr("sonorant.service.text.sentences.sentencex.segment", segment)
    whole, by_char = Sentences(code), Sentences(code)
    sentences = whole.push(text)
    assert looked_at <= 80 * len(text)
    looked_at = 0
    assert [sentence for char in text for sentence in by_char.push(char)] == sentences
    assert looked_at <= 80 * len(text)
    assert "".join(sentences) + whole.rest() == text


def test_a_quotation_that_is_too_long_is_cut_where_its_sentences_end() -> None:
    sentences = Sentences("en")
    text = 'He said "' + "So it is, and it goes on. " * 40
    found = sentences.push(text)
    assert found[0] == 'He said "So it is, and it goes on. '
    assert all(sentence == "So it is, and it goes on. " for sentence in found[1:])
    assert len(found) > 20


def test_every_character_that_ends_a_sentence_is_a_place_to_look_at() -> None:
    for code in map(language_code, LANGUAGES):
        for char in map(chr, range(0x20000)):
            if unicodedata.category(char) == "Po" and first_end(f"Some words{char} More follow", code) < 14:
                assert Sentences(code).push(f"Some words{char} More follow") == [f"Some words{char} "], (
                    code,
                    hex(ord(char)),
                )


def test_languages() -> None:
    names = ("auto", "", "German", "zh-CN", "fr")
    assert [language_code(name) for name in names] == ["auto", "auto", "de", "zh", "fr"]


# Whole sentences, each a line
IN_LANGUAGES = {
    "es": """\
Llegó el Sr. García.
La Sra. Pérez vive en la Av. Central.
¿Vienes?
¡Claro que sí!
Vale 3,5 euros.
Son 1.234 personas.
El n.º 5 es mío, p. ej. el de la pág. 12.
La Dra. Ruiz y D. Juan fueron a EE. UU. en el s. XIX.
«¿Qué?», dijo.
«No sé.»
—¿Vienes? —preguntó Ana.
Luego se fueron.""",
    "fr": """\
M. Dupont et Mme. Martin arrivent.
Le Dr. Petit est là à 12 h 30.
C'est vrai !
Vraiment ?
Cela coûte 3,5 euros.
Voir art. 5 du code, chap. 3, p. 12.
J.-P. Sartre est né au XXe siècle.
Il a dit : « Non. »
Puis il partit.
« Non ! » cria-t-il.
C'est en 50 av. J.-C. que cela commença.""",
    "it": """\
Il sig. Rossi e la sig.ra Bianchi sono qui.
Il dott. Verdi e l'avv. Russo arrivano.
Cfr. pag. 12 e n. 5.
Sono 3,5 euro.
Perché?
Non so!
È nato nel sec. XV a.C. a Roma.
L'arch. Piano abita a S. Maria.
Poi andò via.""",
    "pt": """\
O Sr. Silva e a Profa. Ana chegaram.
Moro na Av. Brasil n.º 5.
Custa 3,5 reais.
São 1.234 pessoas.
Veja p. ex. a pág. 12.
V. Exa. sabe.
Você vem?
Claro!
Às 12h30 no séc. XX era assim.
Tchau.
— Você vem? — perguntou Ana.
Depois foram embora.""",
}


@pytest.mark.parametrize("code", IN_LANGUAGES)
def test_abbreviations_numbers_and_quotations_of_other_languages(code: str) -> None:
    lines = IN_LANGUAGES[code].splitlines()
    text = " ".join(lines)
    for pieces in (text, [text], re.split(r"(?<= )", text)):
        sentences = Sentences(code)
        found = [sentence for piece in pieces for sentence in sentences.push(piece)]
        assert [sentence.strip() for sentence in [*found, sentences.rest()]] == lines


def test_lines_of_lists_and_dialogues_are_sentences() -> None:
    text = "Sí, señor.\n— no lo sé, dijo.\n- así es todo.\n\n—Vamos. Otra vez aquí."
    assert [part.strip() for part in segment(text, AUTO)][:3] == ["Sí, señor.", "— no lo sé, dijo.", "- así es todo."]
    assert [part.strip() for part in segment("Habló la Sra.\n\nOtra vez.", "es") if part.strip()] == [
        "Habló la Sra.",
        "Otra vez.",
    ]


def test_a_text_whose_language_is_not_named_has_abbreviations_of_all() -> None:
    sentences = Sentences(AUTO)
    text = (
        "Hola, Dra. Ruiz. M. Dupont et MM. Durand sont là. Il sig. Rossi dorme. A Profa. Ana saiu. Come on. Let us go."
    )
    assert [sentence.strip() for sentence in sentences.push(text)] == [
        "Hola, Dra. Ruiz.",
        "M. Dupont et MM. Durand sont là.",
        "Il sig. Rossi dorme.",
        "A Profa. Ana saiu.",
        "Come on.",
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([AUTO, *IN_LANGUAGES]),
    st.lists(
        st.sampled_from([*'aAé .?!»"()\n—-«¿', "Sr. ", "n.º 5 ", "p. ej. ", " D. ", "a.C. ", "sí. ", "XX ", "word "]),
        max_size=60,
    ),
    st.data(),
)
def test_other_languages_are_cut_alike_however_they_come(code: str, parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    whole, in_pieces = Sentences(code), Sentences(code)
    cuts = [data.draw(st.integers(0, len(text))) for _ in range(3)]
    pieces = [text[start:end] for start, end in itertools.pairwise(sorted((0, *cuts, len(text))))]
    assert [sentence for piece in pieces for sentence in in_pieces.push(piece)] == whole.push(text)
    assert whole.rest() == in_pieces.rest()
