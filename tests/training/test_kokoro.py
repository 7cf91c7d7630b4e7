"""What the teacher Kokoro needs beside its network, which no registry's test machine has."""

import numpy as np
import pytest
import torch

from sonorant.training.speakers import PARTS_F0_HZ
from sonorant.training.teachers.kokoro.espeak import grouped
from sonorant.training.teachers.kokoro.modules import MAX_TOKENS, STYLE_SIZE, Lengths, MaskedAdaIN, moved
from sonorant.training.teachers.kokoro.phonemes import AHEAD_S, Spelling, Word, chunks, phones_of, spoken_line
from sonorant.training.teachers.kokoro.phonemizer import Phonemizer
from sonorant.training.teachers.kokoro.teacher import joined
from sonorant.training.teachers.kokoro.voices import LENDERS, LENT, MIXTURES, PART_ROWS, borrowed, in_language, style_of
from sonorant.training.teachers.speech import PAUSE, PHONES, Speech

TEXT = "Hi, Ada! Go."
SPELLING: Spelling = (
    Word(0, 2, "hˈI"),
    Word(2, 3, ","),
    Word(4, 7, "ˈAdə"),
    Word(7, 8, "!"),
    Word(9, 11, "ɡˈO"),
    Word(11, 12, "."),
)
OTHERS_VOICES = {
    *("alloy", "echo", "fable", "nova", "onyx", "sky", "aoede", "kore", "fenrir", "puck"),
    *("adam", "bella", "sarah", "george"),
}


def test_words_have_spaces_between_them_and_punctuation_has_none_before() -> None:
    assert spoken_line(SPELLING) == "hˈI, ˈAdə! ɡˈO."


def test_long_texts_are_split_where_sentences_end() -> None:
    assert chunks(SPELLING, max_phones=100) == [SPELLING]
    assert chunks(SPELLING, max_phones=10) == [SPELLING[:4], SPELLING[4:]]
    assert chunks((Word(0, 600, "a" * 600),), max_phones=10) is None  # a sentence that the teacher cannot speak at once


def test_no_part_of_a_long_text_is_only_punctuation() -> None:
    quoted: Spelling = (Word(0, 1, "…"), Word(1, 3, "ɡˈO"), Word(3, 4, "."), Word(4, 5, "”"), Word(6, 8, "ɡˈO"))
    assert chunks(quoted, max_phones=1) == [quoted[:4], quoted[4:]]


def test_phones_have_times_and_words() -> None:
    line = spoken_line(SPELLING[:3])
    phones, ends_s, spans = phones_of(SPELLING[:3], [0.1] * (len(line) + 2))
    assert [PHONES[phone] for phone in phones] == ["pau", "h", "I", "pau", "A", "d", "ə", "pau"]
    assert spans == [None, (0, 2), (0, 2), None, (4, 7), (4, 7), (4, 7), None]
    # A stressed vowel has its mark's time, a word that of the space before it. All but the last sound are early.
    early = [end - AHEAD_S for end in (0.1, 0.2, 0.4, 0.5, 0.8, 0.9)]
    assert ends_s == pytest.approx([*early, 1.0, 1.1])


def test_a_tilde_makes_another_phone_of_the_one_before_it() -> None:
    words: Spelling = (Word(0, 4, "bˈɔ̃"),)  # three letters and a mark of stress
    phones, ends_s, spans = phones_of(words, [0.1] * 6)
    assert [PHONES[phone] for phone in phones] == ["pau", "b", "ɔ̃", "pau"]
    assert ends_s == pytest.approx([0.1 - AHEAD_S, 0.2 - AHEAD_S, 0.5, 0.6]) and spans[1:3] == [(0, 4), (0, 4)]


def test_words_of_a_phrase_are_told_apart_by_their_sound() -> None:
    assert grouped([["le"], ["ami"]], ["lez", "ami"]) == ((1, 1), (1, 1))
    assert grouped([["il"], ["i"], ["a"], ["duz"]], ["ilja", "duz"]) == ((3, 1), (1, 1))  # eSpeak joins words,
    assert grouped([["ɑ̃"], ["mil", "nœf"], ["ɔ̃"]], ["ɑ̃", "mil", "nœf", "ɔ̃"]) == ((1, 1), (1, 2), (1, 1))
    # and both in one phrase, so that as many words come out as went in.
    assert grouped([["paʁs"], ["kə"], ["milnœf"]], ["paʁskə", "mil", "nœf"]) == ((2, 1), (1, 2))
    assert grouped([["mɛzɔ̃"], ["ʁuʒ"]], ["tabl", "vɛʁt", "ki"]) is None


SPOKEN = {  # language: (text, its words with a letter or digit)
    "spanish": (
        "¿Sr. Ruiz? El 3.º tren, de las 15:30, cuesta 1.250,50 €.",
        "Sr.|Ruiz|El|3.º|tren|de|las|15:30|cuesta|1.250,50 €",
    ),
    "french": ("« Il y a 12 ans, c’est vrai… vas-y ! » à 20 h 30", "Il|y|a|12|ans|c’est|vrai|vas-y|à|20 h 30"),
    "italian": ("Un po' d'acqua: dov'è l'ufficio, nel 1987?", "Un|po|d'acqua|dov'è|l'ufficio|nel|1987"),
    "portuguese": ("— É, o que é?\nDê-me R$ 12,50, Sra. Lima!", "É|o|que|é|Dê-me|R$ 12,50|Sra.|Lima"),
}


def test_words_sound_as_their_neighbours_make_them() -> None:
    pytest.importorskip("misaki")
    pytest.importorskip("espeakng_loader")
    spelling = Phonemizer(dict.fromkeys("".join(PHONES), 0)).spell("les amis, les gens", "french")
    assert spelling is not None
    assert [word.phones for word in spelling] == ["lez", "ami", "le", "ʒɑ̃"]


@pytest.mark.parametrize("language", SPOKEN)
def test_every_word_is_spelled_with_its_characters(language: str) -> None:
    pytest.importorskip("misaki")
    pytest.importorskip("espeakng_loader")
    text, words = SPOKEN[language]
    vocabulary = dict.fromkeys((*"".join(PHONES), *" ˈˌː,.!?:…—“”"), 0)
    spelling = Phonemizer(vocabulary).spell(text, language)
    assert spelling is not None
    assert "|".join(text[word.begin : word.end] for word in spelling if word.is_spoken) == words
    for word in spelling:
        if word.is_spoken:  # none of its phones is taken for a pause
            ids, _, _ = phones_of((word,), [0.1] * (len(word.phones) + 2))
            assert PAUSE not in ids[1:-1]


def test_parts_of_a_long_text_follow_one_another() -> None:
    silence, sound = np.zeros(12000, np.int16), np.full(24000, 8000, np.int16)
    part = Speech(
        np.concatenate([silence, sound, silence]), 24000, (PAUSE, 1, PAUSE), (0.5, 1.5, 2.0), (None, (0, 2), None)
    )
    whole = joined([part, part])
    assert len(whole.samples) == round(2 * (0.05 + 1.0 + 0.3) * 24000)
    assert whole.ends_s == pytest.approx((0.05, 1.05, 1.35, 1.40, 2.40, 2.70))


def test_padding_does_not_change_what_is_normalized() -> None:
    torch.manual_seed(0)
    lengths = Lengths()
    adain = MaskedAdaIN(torch.nn.InstanceNorm1d(4, affine=True), torch.nn.Linear(6, 8), lengths)
    x, style = torch.randn(2, 4, 20), torch.randn(2, 6)
    lengths.set(torch.tensor([10, 6]), 10)  # at twice the rate of steps
    together = adain(x, style)
    lengths.set(torch.tensor([6]), 6)
    alone = adain(x[1:, :, :12], style[1:])
    assert torch.allclose(together[1:, :, :12], alone, atol=1e-5)


def test_the_median_of_a_pitch_curve_is_moved_and_its_pauses_stay() -> None:
    curves = torch.tensor([[0.0, 90.0, 100.0, 120.0, 0.0], [0.0, 190.0, 200.0, 220.0, 0.0]])
    higher, same = moved(curves, torch.tensor([150.0, torch.nan]))
    assert higher.tolist() == pytest.approx([0, 135, 150, 180, 0])
    assert torch.equal(same, curves[1])
    assert moved(torch.zeros(1, 4), torch.tensor([150.0])).tolist() == [[0.0] * 4]  # nothing is voiced


def test_the_style_of_a_mixture_is_the_mean_of_its_parts_for_that_length() -> None:
    whole = torch.arange(MAX_TOKENS)[:, None].float().expand(-1, STYLE_SIZE)
    styles = {"whole": whole, "part": whole[torch.arange(PART_ROWS) * MAX_TOKENS // PART_ROWS]}
    for length in (1, 77, MAX_TOKENS):
        assert style_of(styles, {"whole": 1.0}, length)[0] == length - 1
        assert abs(style_of(styles, {"whole": 0.5, "part": 0.5}, length)[0] - (length - 1)) <= 4


def test_a_voice_borrows_sounds_and_keeps_its_melody() -> None:
    own, lent = torch.zeros(MAX_TOKENS, STYLE_SIZE), torch.ones(MAX_TOKENS, STYLE_SIZE)
    style = borrowed(own, lent)
    assert torch.all(style[:, : STYLE_SIZE // 2] == LENT) and torch.equal(style[:, STYLE_SIZE // 2 :], own[:, :128])
    assert in_language("wren", "french") == "wren/french" and in_language("wren", "english") == "wren"
    made = "af_heart*0.62+hm_psi*0.38:147:0.98:1.04"
    assert in_language(made, "french") == made


def test_every_voice_is_a_mean_of_several_and_none_bears_the_name_of_another_voice() -> None:
    for name, mixture in MIXTURES.items():
        assert len(mixture) >= 2 and sum(mixture.values()) == pytest.approx(1)
        assert max(mixture.values()) <= 0.5
        assert not {part.partition("_")[2] for part in (*mixture, f"_{name}")} & OTHERS_VOICES
    assert not {part.partition("_")[2] for part in (*PARTS_F0_HZ, *LENDERS.values())} & OTHERS_VOICES
