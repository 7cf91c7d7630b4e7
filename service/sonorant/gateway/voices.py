"""Names of voices as other protocols have them, and who speaks here for each. Pure."""

import re
from collections.abc import Sequence

# OpenAI's voices; some clients (Pipecat's OpenAI service among them) refuse all others before they send.
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
MAX_NAME_CHARS = 1024  # that are looked at

_ID = re.compile(r"[a-z][a-z0-9-]{2,62}")
_OTHER = re.compile(r"[^a-z0-9-]+")


def resolve_voice(name: str, presets: Sequence[str] = ()) -> str:
    """The id of a voice of the server; "" = its default. OpenAI's names are spread over the presets there are."""
    name = name.strip().lower()
    if name in ("", DEFAULT_VOICE):
        return ""
    if name in presets:
        return name
    if name in OPENAI_VOICES:
        return presets[OPENAI_VOICES.index(name) % len(presets)] if presets else ""
    return name if _ID.fullmatch(name) else voice_id(name) or name


def voice_id(name: str) -> str:
    """The id that a voice made under this name gets: "My Voice" -> "my-voice". "" if nothing of the name can be one."""
    slug = _OTHER.sub("-", name[:MAX_NAME_CHARS].strip().lower()).strip("-")
    slug = slug if slug[:1].isalpha() else f"v-{slug}" if slug else ""
    return slug[:63]
