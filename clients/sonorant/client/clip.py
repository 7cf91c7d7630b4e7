"""A whole clip, as `SpeechClient.synthesize` returns it."""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from sonorant.client.file_formats import check_fits
from sonorant.client.listening import audio_out
from sonorant.client.listening.compressed import CODECS, open_compressed
from sonorant.tts.v1.audio_pb2 import AUDIO_ENCODING_PCM_S16LE
from sonorant.tts.v1.synthesis_pb2 import UtteranceDone
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeResponse


class Reason(IntEnum):
    """Why an utterance ended. Equal to the number of the contract, and printed as its name."""

    UNSPECIFIED = 0
    COMPLETED = 1
    CANCELLED = 2
    FAILED = 3
    MAX_AUDIO = 4
    RUNAWAY = 5

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


def reason_of(done: UtteranceDone) -> Reason:
    return Reason(done.reason)


@dataclass(frozen=True, slots=True)
class Saved:
    """A file that was written while its audio came; other fields are those of UtteranceDone, such as `stats`."""

    path: Path
    done: UtteranceDone
    first_audio_s: float  # from the call to its first audio, at this end of the network; nan without audio

    def __getattr__(self, name: str) -> Any:
        return getattr(self.done, name)

    @property
    def reason(self) -> Reason:
        return reason_of(self.done)


@dataclass(frozen=True, slots=True)
class Clip:
    """Audio with its format, the marks of its words, and statistics; fields are those of SynthesizeResponse."""

    response: SynthesizeResponse

    def __getattr__(self, name: str) -> Any:
        return getattr(self.response, name)

    @property
    def audio(self) -> bytes:
        return bytes(self.response.audio)

    @property
    def reason(self) -> Reason:
        return Reason(self.response.reason)

    @property
    def duration_s(self) -> float:
        """Of the audio as it is heard, after `speed`."""
        return self.response.stats.sent_ms / 1000

    def save(self, path: str | Path) -> Path:
        """Write a file whose name must fit the encoding of the clip. Samples without a header get that of WAV, or are
        compressed as MP3 or FLAC."""
        path = Path(path)
        encoding, rate_hz = self.response.format.encoding, self.response.format.sample_rate_hz
        check_fits(path, encoding)
        if path.suffix in CODECS and encoding == AUDIO_ENCODING_PCM_S16LE:
            with open_compressed(path, rate_hz) as write:
                write(self.response.audio)
        elif path.suffix == ".wav" and encoding == AUDIO_ENCODING_PCM_S16LE:
            with audio_out.open_wav(path, rate_hz) as write:
                write(self.response.audio)
        else:
            path.write_bytes(self.response.audio)
        return path

    async def play(self) -> None:
        """Play the clip, which must be PCM, with ffplay or aplay."""
        if self.response.format.encoding != AUDIO_ENCODING_PCM_S16LE:
            raise ValueError("only pcm_s16le can be played; leave the encoding out")
        async with audio_out.output(self.response.format.sample_rate_hz, wav=None, encoded=None, raw=None) as write:
            write(self.response.audio)
