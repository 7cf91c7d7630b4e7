"""Writes an utterance as codes. They go out as the engine made them: rate, speed and gain do not apply."""

from sonorant.engine import Int16Array
from sonorant.service.audio.codes import CodesHeader, Kind, record
from sonorant.service.audio.pcm import Samples
from sonorant.service.audio.writer import AudioSpec, Piece


class CodesWriter:
    """A `Writer` that makes one piece per frame."""

    def __init__(self, header: CodesHeader, past_codes: Int16Array | None) -> None:
        self._header = header
        self._past_codes = past_codes
        self._begun = False
        self._kind = Kind.SEGMENT  # of the next frame

    def begin(self, spec: AudioSpec | None = None, *, carries_on: bool = False) -> list[Piece]:
        self._kind = Kind.FRAMES if carries_on else Kind.SEGMENT
        if self._begun:
            return []
        self._begun = True
        data = self._header.to_bytes()
        if self._past_codes is not None:
            data += record(Kind.PAST, len(self._past_codes), self._header.pack(self._past_codes))
        return [Piece(data, 0)]

    def speech(self, samples: Samples, codes: Int16Array) -> list[Piece]:
        pieces = []
        for frame in codes:
            data = record(self._kind, 1, self._header.pack(frame[None]))
            pieces.append(Piece(data, self._header.frame_samples))
            self._kind = Kind.FRAMES
        return pieces

    skip = speech

    def pause(self, duration_ms: int) -> list[Piece]:
        num_samples = duration_ms * self._header.sample_rate_hz // 1000
        return [Piece(record(Kind.PAUSE, duration_ms), num_samples)] if num_samples else []

    def flush(self) -> list[Piece]:
        return []

    end = flush
