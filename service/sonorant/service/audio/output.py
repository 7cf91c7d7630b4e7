"""Which writer an utterance has, and how its pieces go into messages."""

from collections import deque
from typing import Protocol

from sonorant.engine import EngineInfo, Int16Array
from sonorant.service.audio.codes import CodesHeader, join
from sonorant.service.audio.codes_writer import CodesWriter
from sonorant.service.audio.pcm import Samples
from sonorant.service.audio.writer import AudioSpec, AudioWriter, Piece
from sonorant.tts.v1 import audio_pb2


def joined(pieces: deque[Piece], spec: AudioSpec, max_ms: float) -> Piece:
    """The next piece, and with it more of those that are there, if that is allowed."""
    first = pieces.popleft()
    if not spec.may_join or not first.num_samples:
        return first
    limit = max_ms * spec.sample_rate_hz // 1000
    data, num_samples = [first.data], first.num_samples
    while pieces and pieces[0].num_samples and num_samples + pieces[0].num_samples <= limit:
        piece = pieces.popleft()
        data.append(piece.data)
        num_samples += piece.num_samples
    if len(data) == 1:
        return first
    return Piece(join(data) if spec.encoding == audio_pb2.AUDIO_ENCODING_CODES else b"".join(data), num_samples)


class Writer(Protocol):
    """What the engine makes of one utterance, into pieces."""

    def begin(self, *, goes_on: bool = False) -> list[Piece]:
        """Of each segment: what comes before it. `goes_on`: the decoder was not begun anew for it."""

    def speech(self, samples: Samples, codes: Int16Array) -> list[Piece]:
        """Of frames of the segment: every piece that is now complete."""

    def pause(self, duration_ms: int) -> list[Piece]:
        """Between two segments."""

    def flush(self) -> list[Piece]:
        """All that is still inside; what follows begins anew, but for the container."""

    def end(self) -> list[Piece]:
        """All that is still inside, and what closes the container."""


def writer_for(spec: AudioSpec, info: EngineInfo, past_codes: Int16Array | None, serial: int) -> Writer:
    """`past_codes` [frames, codebooks]: those of a clone's reference."""
    if spec.encoding == audio_pb2.AUDIO_ENCODING_CODES:
        return CodesWriter(CodesHeader.of(info), past_codes)
    return AudioWriter(spec, serial)
