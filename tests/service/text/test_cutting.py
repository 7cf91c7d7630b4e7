"""Long texts are cut where sentences end, however they come in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.service.text.segmenter import Cutter

SENTENCES = {
    "en": "Dr. Lee paid $25.99 at 10:30 a.m. for it. He said: “Really?” Nobody knew. It was version 3.5, of course! ",
    "es": "La Sra. Pérez dio 3,5 euros a D. Juan. «¿Qué?», dijo el Dr. Ruiz. El n.º 5 es de la pág. 12. —¿Sí? —dijo. ",
    "fr": "M. Dupont est là à 12 h 30, dit Mme. Petit. « Non. » Vraiment ? J.-P. Sartre cite l'art. 5 du chap. 3 ! ",
    "it": "Il sig. Rossi e l'avv. Russo danno 3,5 euro. E S. Maria? Cfr. pag. 12 e n. 5. È del sec. XV a.C. o no! ",
    "pt": "A Sra. Costa e a Profa. Ana dão 3,5 reais. Vem? É na Av. Brasil n.º 5, pág. 12. — Sim! — disse D. Maria. ",
    "zh": "你好，世界。今天的天气很好，我们去公园吧！你想去吗？",
    "hi": "यह एक वाक्य है। क्या यह भी एक वाक्य है? हाँ। ",
    "ar": "هل هذا صحيح؟ نعم، هذا صحيح. شكرا. ",
    "ja": "これは文です。あれも文ですか？はい、そうです。",
}
ABBREVIATED = (
    *("Dr.", "a.m.", "25.", "3.", "Sra.", "D.", "n.", "pág.", "Sí?", "M.", "Mme.", "J.", "P.", "art.", "chap.", "sig."),
    *("avv.", "S.", "pag.", "sec.", "a.", "Profa.", "Av."),
)


def cut(text: str, code: str = "en", max_chars: int = 100) -> list[str]:
    return [piece for piece, _ in Cutter(code, max_chars).split(text)]


@pytest.mark.parametrize("code", SENTENCES)
def test_segments_end_with_sentences(code: str) -> None:
    text = SENTENCES[code] * 20
    segments = cut(text, code, 140)
    assert "".join(segments) == text and len(segments) > 5
    assert all(segment.rstrip()[-1] in ".!?。！？।؟”»" and len(segment) <= 140 for segment in segments)
    assert not any(segment.split()[-1] in ABBREVIATED for segment in segments)


def test_a_short_text_is_one_segment() -> None:
    assert cut("One. Two. Three. Four.") == ["One. Two. Three. Four."]


def test_a_paragraph_ends_a_segment_without_a_mark() -> None:
    title = "A very long title that takes as many characters as half a segment has"
    assert cut(f"{title}\n\nIt was a dark night.") == [f"{title}\n\n", "It was a dark night."]


def test_a_long_sentence_is_cut_at_a_clause_then_at_a_word_then_anywhere() -> None:
    clauses = "and the house is by the river, " * 20
    assert all(segment.endswith(", ") and len(segment) <= 124 for segment in cut(clauses)[:-1])
    words = "word " * 60
    assert all(segment.endswith(" ") and len(segment) == 100 for segment in cut(words)[:-1])
    assert [len(segment) for segment in cut("a" * 400)] == [164, 164, 72]
    assert [len(segment) for segment in cut("好" * 250)] == [100, 100, 50]


@pytest.mark.parametrize("run", [" ", ".", "\u0301", "\n", ". ", "\u200b"])
def test_runs_without_end_are_cut_too(run: str) -> None:
    assert max(map(len, cut(run * 5000))) <= 264


def test_no_accent_is_cut_off() -> None:
    assert all(segment[0] == "e" for segment in cut("e\u0301" * 300))


@given(st.data(), st.sampled_from(sorted(SENTENCES)), st.integers(20, 300))
def test_the_cutting_makes_no_difference(data: st.DataObject, code: str, max_chars: int) -> None:
    text = data.draw(st.one_of(st.just(SENTENCES[code] * 8), st.text(max_size=400)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    cutter = Cutter(code, max_chars)
    segments = [""]
    for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True):
        first, *others = (piece for piece, _ in cutter.split(text[a:b]))
        segments[-1] += first
        segments += others
    assert segments == cut(text, code, max_chars) and "".join(segments) == text
    assert all(segment for segment in segments[:-1])
    assert all(len(segment) <= 2 * max_chars + 64 for segment in segments)
