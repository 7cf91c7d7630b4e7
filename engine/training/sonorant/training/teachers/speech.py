"""What a teacher returns: speech, with the time of every phone and the text that it belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import soxr

from sonorant.engine.errors import EngineError
from sonorant.engine.types import Int16Array

_FLITE = "aa ae ah ao aw ax ay b ch d dh eh er ey f g hh ih iy jh k l m n ng ow oy p r s sh t th uh uw v w y z zh"
_ENGLISH = "AIOQSTWYabdefhijklmnoprstuvwzæðŋɐɑɒɔəɚɛɜɡɪɹɾʃʊʌʒʔʤʧθᵊᵻ"  # in IPA, American and British
_ROMANCE = "xyøœɣʁβɲʎʝʣʦ"  # that Spanish, French, Italian and Portuguese have besides
NASAL = "\u0303"  # a tilde over the letter before it
# One list for all teachers: each uses its own part of it, and the heads that read phones need not know which.
PHONES = tuple(
    dict.fromkeys(("pau", *_FLITE.split(), *_ENGLISH, *_ROMANCE, *(vowel + NASAL for vowel in "ɑɛɔœɐʊuoaei")))
)
PAUSE = 0
MADE_LEVEL = 2800.0  # root mean square of all made speakers' samples, so that loudness is no trait
_PEAK = 30000.0


class TeacherUnavailable(EngineError):
    """A teacher's library, weights or voices cannot be loaded."""


@dataclass(frozen=True, slots=True)
class Speech:
    samples: Int16Array
    rate_hz: int
    phones: tuple[int, ...]  # indices of PHONES
    ends_s: tuple[float, ...]  # when each phone ends
    spans: tuple[tuple[int, int] | None, ...]  # characters of the word that each phone is part of; None if unknown


class Teacher(Protocol):
    def speak(self, texts: Sequence[str], voices: Sequence[str]) -> Sequence[Speech | None]:
        """Return the speech of each text in its voice; None where there is nothing to say, or no way to say it."""


def played_faster(speech: Speech, ratio: float) -> Speech:
    """Speech whose formants and pitch are higher, and whose durations are shorter, by the ratio; at MADE_LEVEL."""
    samples = soxr.resample(speech.samples.astype(np.float32), speech.rate_hz * ratio, speech.rate_hz, quality="HQ")
    level, peak = float(np.sqrt(np.square(samples).mean())), float(np.abs(samples).max())
    gain = min(MADE_LEVEL / max(level, 1.0), _PEAK / max(peak, 1.0))
    return Speech(
        (samples * gain).astype(np.int16),
        speech.rate_hz,
        speech.phones,
        tuple(end / ratio for end in speech.ends_s),
        speech.spans,
    )
