"""Maps the voice names of other protocols to voices of the server. Pure."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence

from anyascii import anyascii

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
MAX_SPELLED_CHARS = 64  # of a name, in its id
MIN_ID_CHARS, MAX_ID_CHARS = 3, 63

_ID = re.compile(r"[a-z][a-z0-9-]{2,62}")
_OTHER = re.compile(r"[^a-z0-9-]+")
_SPELLED = re.compile(r"[a-z0-9]+(?:[ _-]+[a-z0-9]+)*")  # names that differ in blanks and hyphens only are one


def resolve_voice(name: str, presets: Sequence[str] = ()) -> str:
    """The server's voice id for a name; "" = its default voice. OpenAI's names are spread over the presets."""
    name = name.strip().lower()
    if name in ("", DEFAULT_VOICE):
        return ""
    if name in presets:
        return name
    if name in OPENAI_VOICES:
        return presets[OPENAI_VOICES.index(name) % len(presets)] if presets else ""
    return voice_id(name) or name


def voice_id(name: str) -> str:
    """The id for a new voice with this name: "My Voice" -> "my-voice". "" if the name has no letter and no digit.

    A name that an id cannot spell ends with a few digits of its hash, so that names that differ are never one voice.
    """
    name = unicodedata.normalize("NFC", name.strip().lower())
    if _ID.fullmatch(name):
        return name
    if not any(map(str.isalnum, name)):
        return ""
    slug = _OTHER.sub("-", anyascii(name[:MAX_SPELLED_CHARS]).lower()).strip("-")
    slug = slug if slug[:1].isalpha() else f"v-{slug}".rstrip("-")
    if _SPELLED.fullmatch(name) and MIN_ID_CHARS <= len(slug) <= MAX_ID_CHARS:
        return slug
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{slug[: MAX_ID_CHARS - 1 - len(digest)].rstrip('-')}-{digest}"
