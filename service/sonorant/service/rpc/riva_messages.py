"""Translates Riva's messages into ours and back. Pure.

Of a request, only `quality` is ignored, which clients send by default.
"""

from collections.abc import Iterable, Sequence

import regex

from sonorant.engine import EngineInfo
from sonorant.service.audio.writer import wav_header
from sonorant.service.errors import InvalidField, NotServed, RequestError
from sonorant.service.text.checks import WIDE
from sonorant.service.text.sentences import MAX_WINDOW_CHARS, begins_sentence, ends_sentence
from sonorant.tts.riva.v1 import riva_pb2
from sonorant.tts.v1 import audio_pb2, synthesis_pb2, voice_pb2

_ENCODINGS = {
    riva_pb2.RIVA_ENCODING_UNSPECIFIED: audio_pb2.AUDIO_ENCODING_PCM_S16LE,
    riva_pb2.RIVA_ENCODING_LINEAR_PCM: audio_pb2.AUDIO_ENCODING_PCM_S16LE,
    riva_pb2.RIVA_ENCODING_FLAC: audio_pb2.AUDIO_ENCODING_FLAC,
    riva_pb2.RIVA_ENCODING_MULAW: audio_pb2.AUDIO_ENCODING_MULAW,
    riva_pb2.RIVA_ENCODING_OGGOPUS: audio_pb2.AUDIO_ENCODING_OGG_OPUS,
    riva_pb2.RIVA_ENCODING_ALAW: audio_pb2.AUDIO_ENCODING_ALAW,
}
_BEGINS = regex.compile(rf"""['"‘“„‚«‹(\[]?[\w--[\p{{Ll}}{WIDE}]]""", regex.VERSION1)  # a sentence
_WORD_BEGINS = regex.compile(rf"""['"‘“„‚«‹(\[]?[[\w--[{WIDE}]]\p{{Sc}}]""", regex.VERSION1)
# Not the point of an initial, as in "U.S." before "A.".
_WORD_ENDS = regex.compile(rf"""(?:[\w--[{WIDE}]]|[,;:!?)\]"'”’»%]|\w\w\.)$""", regex.VERSION1)
# Prefixes of the voices of NVIDIA's own models, which clients ask for by default.
_STOCK_VOICES = ("magpie", "english-us")
# Our field paths, and Riva's names for the same fields.
_NAMES = (
    ("voice.voice_id", "voice_name"),
    ("voice.reference.audio", "zero_shot_data.audio_prompt"),
    ("voice.reference.transcript", "zero_shot_data.transcript"),
    ("voice.reference", "zero_shot_data"),
    ("voice", "voice_name"),
    ("audio.encoding", "encoding"),
    ("audio.sample_rate_hz", "sample_rate_hz"),
    ("language", "language_code"),
)


def synthesis_config(request: riva_pb2.SynthesizeSpeechRequest) -> synthesis_pb2.SynthesisConfig:
    """Return our config for a request. Raises InvalidField and NotServed, with Riva's field names."""
    if request.encoding not in _ENCODINGS:
        raise InvalidField("encoding", f"{request.encoding} is no AudioEncoding")
    if request.sample_rate_hz < 0:
        raise InvalidField("sample_rate_hz", f"{request.sample_rate_hz} is below 0; 0 is the model's own rate")
    if request.custom_dictionary:
        raise NotServed("custom_dictionary", "the model reads letters, not IPA; respell such words in the text")
    if request.custom_configuration:
        raise NotServed("custom_configuration", "this server supports none; leave it out")
    return synthesis_pb2.SynthesisConfig(
        voice=_voice(request),
        language=request.language_code,
        audio=audio_pb2.AudioFormat(encoding=_ENCODINGS[request.encoding], sample_rate_hz=request.sample_rate_hz),
    )


def timestamps(request: riva_pb2.SynthesizeSpeechRequest) -> synthesis_pb2.TimestampMode:
    if request.enable_word_time_offsets:
        return synthesis_pb2.TIMESTAMP_MODE_WORD
    return synthesis_pb2.TIMESTAMP_MODE_UNSPECIFIED


def _voice(request: riva_pb2.SynthesizeSpeechRequest) -> voice_pb2.VoiceSelector | None:
    if request.HasField("zero_shot_data"):
        prompt = request.zero_shot_data
        reference = voice_pb2.ReferenceAudio(audio=_recording(prompt), transcript=prompt.transcript)
        return voice_pb2.VoiceSelector(reference=reference)
    if not request.voice_name or request.voice_name.lower().startswith(_STOCK_VOICES):
        return None
    # Clients put the model's name and a dot before the voice. None of our voices has a dot in its name.
    return voice_pb2.VoiceSelector(voice_id=request.voice_name.rpartition(".")[2])


def _recording(prompt: riva_pb2.ZeroShotData) -> bytes:
    """Return the recording as a file, with a WAV header if it came as bare samples."""
    audio = prompt.audio_prompt
    if prompt.encoding != riva_pb2.RIVA_ENCODING_LINEAR_PCM or audio.startswith(b"RIFF"):
        return audio
    if prompt.sample_rate_hz <= 0:
        raise InvalidField("zero_shot_data.sample_rate_hz", "bare samples need their rate; set it, or send a WAV file")
    return wav_header(prompt.sample_rate_hz, len(audio)) + audio


def rename_fields(error: RequestError) -> None:
    """Replace our field names in the error with Riva's."""
    message = str(error)
    for path, name in _NAMES:
        for ours in (f"config.synthesis.{path}", f"config.{path}"):
            message = message.replace(ours, name)
            if isinstance(error, InvalidField) and error.field == ours:
                error.field = name
    error.args = (message,)


def response(
    audio: bytes, marks: Iterable[synthesis_pb2.Mark], request_id: riva_pb2.RequestId, text: str = ""
) -> riva_pb2.SynthesizeSpeechResponse:
    words = [riva_pb2.WordTiming(word=mark.text, start_time=mark.start_ms, end_time=mark.end_ms) for mark in marks]
    meta = riva_pb2.SynthesizeSpeechResponseMetadata(text=text, processed_text=text, words=words)
    return riva_pb2.SynthesizeSpeechResponse(audio=audio, meta=meta, id=request_id)


def models(infos: Sequence[EngineInfo], only: str) -> riva_pb2.RivaSynthesisConfigResponse:
    """Describe the served checkpoints. `only`: the name of one, or "" for all."""
    told = riva_pb2.RivaSynthesisConfigResponse()
    for info in infos:
        if only in ("", info.model) and info.model not in {config.model_name for config in told.model_config}:
            parameters = {
                "voice_name": info.model,
                "subvoices": ",".join(f"{speaker}:{index}" for index, speaker in enumerate(info.speakers)),
                "language_code": ",".join(info.languages),
                "sample_rate": str(info.sample_rate_hz),
            }
            told.model_config.add(model_name=info.model, parameters=parameters)
    return told


class Blanks:
    """Puts in the blanks that clients strip from the pieces of a text."""

    def __init__(self) -> None:
        self._before = ""
        self._strips: bool | None = None  # None: no piece has told yet

    def restored(self, piece: str) -> str:
        """Return the next piece, with the blank before it if that is missing.

        It is missing between two sentences. Between words it is where the client cuts a text into pieces of several
        words and strips them. Tokens of a language model have all their blanks.
        """
        if piece != piece.strip():
            self._strips = False
        elif self._strips is None and len(piece.split()) > 1:
            self._strips = True
        is_missing = _is_next_sentence(self._before, piece) or (self._strips and _is_next_word(self._before, piece))
        piece = f" {piece}" if is_missing else piece
        self._before = (self._before + piece)[-MAX_WINDOW_CHARS:]
        return piece


def _is_next_sentence(before: str, text: str) -> bool:
    if not _BEGINS.match(text) or not ends_sentence(before) or before[-1].isspace():
        return False
    return not _in_number(before, text) and begins_sentence(before, "A", "en")


def _is_next_word(before: str, text: str) -> bool:
    return bool(_WORD_ENDS.search(before) and _WORD_BEGINS.match(text)) and not _in_number(before, text)


def _in_number(before: str, text: str) -> bool:
    return text[0].isdigit() and before[-2:-1].isdigit() and not before[-1].isdigit()
