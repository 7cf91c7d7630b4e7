"""The recognizer of the evaluation: pocketsphinx with the English model of its package, in three modes.

It is a weak recognizer, so every figure is to be compared with the teacher's on the same sentences.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pocketsphinx import Decoder, get_model_path

from sonorant.engine.types import Int16Array

SAMPLE_RATE_HZ = 16000
_SILENCE = np.zeros(3200, np.int16)  # the recognizer needs some on both sides
_MODEL = Path(get_model_path()) / "en-us"
_NOISES = ("SIL", "+SPN+", "+NSN+")


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower().replace("-", " "))


class Dictation:
    """Recognizes any English words."""

    def __init__(self) -> None:
        self._decoder = Decoder(samprate=SAMPLE_RATE_HZ, loglevel="FATAL")

    def hear(self, samples: Int16Array) -> list[str]:
        return words_of(_without_variants(_decode(self._decoder, samples)))


class PhoneLoop:
    """Recognizes phones instead of words, by a language model of phones."""

    def __init__(self) -> None:
        self._decoder = Decoder(
            samprate=SAMPLE_RATE_HZ,
            loglevel="FATAL",
            lm=None,
            allphone=str(_MODEL / "en-us-phone.lm.bin"),
            lw=2.0,
            pip=0.3,
            beam=1e-20,
            pbeam=1e-20,
        )

    def hear(self, samples: Int16Array) -> list[str]:
        return [phone.lower() for phone in _decode(self._decoder, samples).split() if phone not in _NOISES]


class SentenceList:
    """Recognizes which of the given sentences was spoken."""

    def __init__(self, sentences: Sequence[str], grammar_file: Path) -> None:
        alternatives = " | ".join(sentences)
        grammar_file.write_text(f"#JSGF V1.0;\ngrammar list;\npublic <sentence> = {alternatives} ;\n")
        self._decoder = Decoder(samprate=SAMPLE_RATE_HZ, loglevel="FATAL", lm=None, jsgf=str(grammar_file))

    def hear(self, samples: Int16Array) -> str:
        return _without_variants(_decode(self._decoder, samples))


def known_words() -> frozenset[str]:
    """Words of the recognizer's dictionary."""
    lines = (_MODEL / "cmudict-en-us.dict").read_text(encoding="utf-8").splitlines()
    return frozenset(line.split(" ", 1)[0] for line in lines)


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
