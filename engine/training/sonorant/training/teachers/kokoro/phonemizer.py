"""Spells text in Kokoro's phones.

Spelling is slow and needs packages that a machine with a GPU may lack, so the text stage spells all sentences ahead.
"""

from collections.abc import Mapping
from dataclasses import replace

from sonorant.training.teachers.kokoro.english import EnglishSpeller
from sonorant.training.teachers.kokoro.espeak import VOICES, EspeakSpeller
from sonorant.training.teachers.kokoro.phonemes import Spelling

LANGUAGES = ("english", *VOICES)


class Phonemizer:
    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._spellers: dict[str, EnglishSpeller | EspeakSpeller] = {}

    def spell(self, text: str, language: str) -> Spelling | None:
        """Return the text's words; None if one of them cannot be spelled, or if there is nothing to say."""
        if language not in self._spellers:
            self._spellers[language] = EnglishSpeller() if language == "english" else EspeakSpeller(language)
        words = self._spellers[language].spell(text) or ()
        known = tuple(replace(word, phones=self._known(word.phones)) for word in words)
        return tuple(word for word in known if word.phones) if any(word.is_spoken for word in known) else None

    def _known(self, phones: str) -> str:
        return "".join(phone for phone in phones if phone in self._vocabulary).strip()
