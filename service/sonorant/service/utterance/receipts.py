"""Receipts for text that was heard: they let another server continue an utterance without charging that text again.

A server cannot know what another one has charged, and a client may claim anything. So the server seals, with a key that
all servers of a deployment have, which text of which caller was heard, and with which frames. A client that resumes
brings the receipt, the text and the frames. Sealed text is free only while it is continued exactly there: known frames
are not made again, and audio that was received is not sent again. So a receipt that is used twice gives nothing new.
Pure, but for the clock.
"""

import hashlib
import hmac
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sonorant.engine import Int16Array
from sonorant.service.access.api_keys import Caller
from sonorant.service.audio.writer import AudioSpec
from sonorant.tts.v1 import audio_pb2, speak_pb2

LIFETIME_S = 3600  # after this a resumed utterance is charged like a new one
# Issued at (Unix time), ms of audio, then the fields of `Place`, then the code that vouches for all of it
_SEAL = struct.Struct(">II5I16s")


class Place(NamedTuple):
    """Where in its segments an utterance is."""

    segment: int = 0  # the one that is being heard
    start_char: int = 0  # its first character
    num_frames: int = 0  # of it that were heard
    num_frames_before: int = 0  # of all segments before it
    pause_ms: int = 0  # all pauses before it


@dataclass(frozen=True, slots=True)
class ProvenHeard:
    """What a valid receipt proves."""

    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Receipts:
    """The receipts of one caller."""

    key: bytes
    caller: str  # the name of the API key
    clock: Callable[[], float] = time.time

    @classmethod
    def of(cls, caller: Caller, key: bytes) -> "Receipts | None":
        """Return None for a caller without a limit of text, who needs none."""
        return None if caller.max_text_chars_per_minute is None else cls(key, caller.name)

    def issue(
        self, text: str, num_samples: int, audio: AudioSpec, place: Place, codes: Int16Array
    ) -> audio_pb2.Receipt:
        """Return the receipt for `text`, heard in the first `num_samples`. `codes` [frames, codebooks]: those of the
        place's segment, up to there."""
        numbers = (int(self.clock()), _ms(num_samples, audio), *place)
        seal = _SEAL.pack(*numbers, self._code(text, codes, numbers))
        return audio_pb2.Receipt(chars=len(text), seal=seal)

    def heard(
        self, resume: speak_pb2.Resume, audio: AudioSpec, segments: Sequence[tuple[Int16Array, bool]]
    ) -> ProvenHeard | None:
        """Return what a Resume proves, or None. `audio`: what the client wants from now on; `segments`: the codes that
        it brings, and whether each is complete."""
        text, seal = resume.heard_text, resume.receipt.seal
        if len(seal) != _SEAL.size or len(text) != resume.receipt.chars or audio.speed != 1:
            return None  # at another speed the audio is made again
        *numbers, code = _SEAL.unpack(seal)
        issued_s, heard_ms, place = numbers[0], numbers[1], Place(*numbers[2:])
        before, here = segments[: place.segment], segments[place.segment : place.segment + 1]
        if not here or not all(complete for _, complete in before) or len(here[0][0]) < place.num_frames:
            return None
        if sum(len(codes) for codes, _ in before) != place.num_frames_before:
            return None
        if not hmac.compare_digest(code, self._code(text, here[0][0][: place.num_frames], numbers)):
            return None
        is_new = abs(self.clock() - issued_s) < LIFETIME_S
        return ProvenHeard(text, place) if is_new and _ms(resume.received_samples, audio) >= heard_ms else None

    def _code(self, text: str, codes: Int16Array, numbers: Sequence[int]) -> bytes:
        parts = (b"sonorant receipt 1", self.caller.encode(), text.encode(), codes.tobytes())
        said = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self.key, said + struct.pack(">7I", *numbers), hashlib.sha256)[:16]


class FreeText:
    """Counts the text of an utterance that a receipt has paid for, while it comes in again."""

    def __init__(self, heard: ProvenHeard) -> None:
        self._place = heard.place
        self._left = heard.text  # what may still come for free
        self._num_chars = len(self._left)
        self._num_taken = 0
        self._pause_ms = 0

    def take(self, piece: str) -> int:
        """Return how many characters of the next piece are free. After the first other character none are."""
        num_same = next((n for n, (a, b) in enumerate(zip(self._left, piece, strict=False)) if a != b), None)
        num_same = min(len(self._left), len(piece)) if num_same is None else num_same
        self._left = self._left[num_same:] if num_same == len(piece) else ""
        self._num_taken += num_same
        return num_same

    def begin_segment(self, number: int, start_char: int, pause_ms: int) -> int:
        """Note a segment after a pause. Return how many characters must be charged after all: if the text is divided
        otherwise than it was, what was heard is not what was sealed, and would be made again."""
        self._pause_ms += pause_ms
        place = self._place
        if number < place.segment:  # with longer pauses, its known frames would not all count as received
            same = self._pause_ms <= place.pause_ms
        elif number == place.segment:
            same = (start_char, self._pause_ms) == (place.start_char, place.pause_ms)
        else:
            same = start_char >= self._num_chars
        if same or not self._num_chars:
            return 0
        self._left, due, self._num_taken, self._num_chars = "", self._num_taken, 0, 0
        return due


def _ms(num_samples: int, audio: AudioSpec) -> int:
    return min(num_samples * 1000 // audio.sample_rate_hz, 2**32 - 1)
