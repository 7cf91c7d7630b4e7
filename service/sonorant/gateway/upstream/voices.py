"""Maps the voice names of other protocols to voices of the server. Pure."""

import re
from collections.abc import Sequence

# OpenAI's voices; some clients, such as Pipecat's OpenAI service, do not send any other name.
OPENAI_VOICES = (
    "alloy",
    "ash",
    "ballad",
    "cedar",
    "coral",
    "echo",
    "fable",
    "marin",
    "nova",
    "onyx",
    "sage",
    "shimmer",
    "verse",
)
DEFAULT_VOICE = "default"
MAX_NAME_CHARS = 1024  # the rest of a name is ignored

_ID = re.compile(r"[a-z][a-z0-9-]{2,62}")
_OTHER = re.compile(r"[^a-z0-9-]+")


def resolve_voice(name: str, presets: Sequence[str] = ()) -> str:
    """The server's voice id for a name; "" = its default voice. OpenAI's names are spread over the presets."""
    name = name.strip().lower()
    if name in ("", DEFAULT_VOICE):
        return ""
    if name in presets:
        return name
    if name in OPENAI_VOICES:
        return presets[OPENAI_VOICES.index(name) % len(presets)] if presets else ""
    return name if _ID.fullmatch(name) else voice_id(name) or name


def voice_id(name: str) -> str:
    """The id for a new voice with this name: "My Voice" -> "my-voice". "" if no character of the name can be used."""
    slug = _OTHER.sub("-", name[:MAX_NAME_CHARS].strip().lower()).strip("-")
    slug = slug if slug[:1].isalpha() else f"v-{slug}" if slug else ""
    return slug[:63]
