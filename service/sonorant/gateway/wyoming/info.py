"""The answer to `describe`. Pure."""

from collections.abc import Sequence
from typing import Any

from sonorant.client import __version__
from sonorant.tts.v1.voice_pb2 import Voice

# Home Assistant knows languages by their codes.
_CODES = {
    "chinese": "zh",
    "english": "en",
    "french": "fr",
    "german": "de",
    "italian": "it",
    "japanese": "ja",
    "korean": "ko",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
}
_ATTRIBUTION = {"name": "Sonorant", "url": ""}


def info(voices: Sequence[Voice]) -> dict[str, Any]:
    program = _artifact("sonorant", "Streaming text-to-speech") | {
        "voices": [_voice(voice) for voice in voices],
        "supports_synthesize_streaming": True,
    }
    return {"tts": [program], "asr": [], "handle": [], "intent": [], "wake": [], "mic": [], "snd": []}


def _voice(voice: Voice) -> dict[str, Any]:
    codes = dict.fromkeys(_CODES.get(language, language) for language in voice.languages)
    described = _artifact(voice.voice_id, voice.display_name or voice.voice_id)
    return described | {"languages": list(codes) or ["en"], "speakers": None}


def _artifact(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "attribution": _ATTRIBUTION,
        "installed": True,
        "version": __version__,
    }
