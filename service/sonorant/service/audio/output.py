"""Chooses the writer of an utterance."""

from typing import Protocol

from sonorant.engine import EngineInfo, Int16Array
from sonorant.service.audio.codes import CodesHeader
from sonorant.service.audio.codes_writer import CodesWriter
from sonorant.service.audio.pcm import Samples
from sonorant.service.audio.writer import AudioSpec, AudioWriter, Piece
from sonorant.tts.v1 import audio_pb2


class Writer(Protocol):
    """Turns what the engine makes of one utterance into pieces."""

    def begin(self, spec: AudioSpec | None = None, *, carries_on: bool = False) -> list[Piece]:
        """Begin a segment and return what comes before it. `spec`: how it sounds, if that varies. `carries_on`: the
        decoder kept its state."""

    def speech(self, samples: Samples, codes: Int16Array) -> list[Piece]:
        """Add frames of the segment and return every piece that is now complete."""

    def skip(self, samples: Samples, codes: Int16Array) -> list[Piece]:
        """Like `speech`, for frames whose pieces are dropped: what is in these is not defined, only their length."""

    def pause(self, duration_ms: int) -> list[Piece]:
        """Add silence between two segments."""

    def flush(self) -> list[Piece]:
        """Return all that is still held. What follows begins anew, but in the same container."""

    def end(self) -> list[Piece]:
        """Return all that is still held, and what closes the container."""


def writer_for(spec: AudioSpec, info: EngineInfo, past_codes: Int16Array | None, serial: int) -> Writer:
    """Return the writer of an utterance. `past_codes`: [frames, codebooks] of a clone's reference."""
    if spec.encoding == audio_pb2.AUDIO_ENCODING_CODES:
        return CodesWriter(CodesHeader.of(info), past_codes)
    return AudioWriter(spec, serial)
