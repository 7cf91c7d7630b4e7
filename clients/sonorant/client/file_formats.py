"""Which encodings fit which names of audio files. Pure."""

from pathlib import Path

from sonorant.client.errors import unknown_name
from sonorant.tts.v1.audio_pb2 import (
    AUDIO_ENCODING_ALAW,
    AUDIO_ENCODING_CODES,
    AUDIO_ENCODING_FLAC,
    AUDIO_ENCODING_MULAW,
    AUDIO_ENCODING_OGG_OPUS,
    AUDIO_ENCODING_PCM_S16LE,
    AUDIO_ENCODING_WAV,
    AudioEncoding,
)

# The first encoding of each is the one to ask for. PCM for MP3 and FLAC is compressed here.
_ENCODINGS = {
    ".wav": (AUDIO_ENCODING_PCM_S16LE, AUDIO_ENCODING_WAV),
    ".ogg": (AUDIO_ENCODING_OGG_OPUS,),
    ".opus": (AUDIO_ENCODING_OGG_OPUS,),
    ".mp3": (AUDIO_ENCODING_PCM_S16LE,),
    ".flac": (AUDIO_ENCODING_PCM_S16LE, AUDIO_ENCODING_FLAC),
    ".pcm": (AUDIO_ENCODING_PCM_S16LE,),
    ".ulaw": (AUDIO_ENCODING_MULAW,),
    ".alaw": (AUDIO_ENCODING_ALAW,),
    ".codes": (AUDIO_ENCODING_CODES,),
}


def encoding_for(path: Path) -> "AudioEncoding":
    """Return the encoding to ask for. Raises InvalidRequest for a name that fits none."""
    if path.suffix not in _ENCODINGS:
        raise unknown_name("file", path.suffix or path.name, tuple(_ENCODINGS))
    return _ENCODINGS[path.suffix][0]


def check_fits(path: Path, encoding: int) -> None:
    """Raise ValueError if the name is that of another kind of file."""
    encoding_for(path)
    if encoding not in _ENCODINGS[path.suffix]:
        name = AudioEncoding.Name(encoding).removeprefix("AUDIO_ENCODING_").lower()
        fit = " or ".join(suffix for suffix, encodings in _ENCODINGS.items() if encoding in encodings)
        raise ValueError(f"{path}: a clip of {name} is no {path.suffix} file; name it {fit or 'otherwise'}")
