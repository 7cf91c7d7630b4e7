"""What a teacher returns: speech, with the time of every phone and the text that it belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sonorant.engine.errors import EngineError
from sonorant.engine.types import Int16Array

_FLITE = "aa ae ah ao aw ax ay b ch d dh eh er ey f g hh ih iy jh k l m n ng ow oy p r s sh t th uh uw v w y z zh"
_IPA = "AIOQSTWYabdefhijklmnoprstuvwzæðŋɐɑɒɔəɚɛɜɡɪɹɾʃʊʌʒʔʤʧθᵊᵻ"  # of American and British English
# One list for all teachers: each uses its own part of it, and the heads that read phones need not know which.
PHONES = tuple(dict.fromkeys(("pau", *_FLITE.split(), *_IPA)))
PAUSE = 0


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
