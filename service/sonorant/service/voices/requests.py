"""Checks requests about stored voices, and turns stored voices into messages of the contract. Pure."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sonorant.service.errors import InvalidField
from sonorant.service.text.checks import check_text
from sonorant.service.text.sentences import language_code
from sonorant.service.voices.file import VoiceAbout
from sonorant.service.voices.store import RequestKey
from sonorant.tts.v1 import voice_pb2, voice_service_pb2

MAX_PAGE_SIZE = 1000
DEFAULT_PAGE_SIZE = 50
MAX_NAME_CHARS = 256
MAX_DESCRIPTION_CHARS = 1024
MAX_CONSENT_CHARS = 1024
MAX_PREVIEW_CHARS = 512
MAX_TRANSCRIPT_CHARS = 4096
MAX_LANGUAGES = 32
MAX_LABELS = 32
MAX_LABEL_NAME_CHARS = 64
MAX_LABEL_CHARS = 256
MAX_TTL_S = 10 * 366 * 24 * 3600
MAX_REQUEST_ID_CHARS = 64

_VOICE_ID = re.compile("[a-z][a-z0-9-]{2,62}")
_ABOUT_FIELDS = (
    "display_name",
    "description",
    "languages",
    "labels",
    "preview_text",
)  # fields of Voice that callers may set

# What callers are told of a stored voice as it stands in its metadata.
_TOLD = [each.name for each in voice_pb2.Voice.DESCRIPTOR.fields if each.name in VoiceAbout.__dataclass_fields__]
_TOLD.remove("kind")
_KINDS = {
    "cloned": voice_pb2.VOICE_KIND_CLONED,
    "designed": voice_pb2.VOICE_KIND_DESIGNED,
    "embedded": voice_pb2.VOICE_KIND_EMBEDDED,
    "mixed": voice_pb2.VOICE_KIND_MIXED,
}
_KIND_OF_SOURCE = {
    "reference": "cloned",
    "design": "designed",
    "speaker_embedding": "embedded",
    "mix": "mixed",
}


def check_create(request: voice_service_pb2.CreateVoiceRequest, now_s: float) -> VoiceAbout:
    """Check all of the request but its source, and return the metadata known so far. voice_id "" is generated later."""
    source = request.WhichOneof("source")
    if source is None:
        raise InvalidField("source", "set one of reference, design, speaker_embedding, mix")
    voice = request.voice
    for field, _ in voice.ListFields():
        if field.name not in _ABOUT_FIELDS:
            raise InvalidField(
                f"voice.{field.name}", f"only {', '.join(_ABOUT_FIELDS)} can be set here; leave it unset"
            )
    check_text(voice.display_name, MAX_NAME_CHARS, "voice.display_name")
    check_text(voice.description, MAX_DESCRIPTION_CHARS, "voice.description")
    check_text(voice.preview_text, MAX_PREVIEW_CHARS, "voice.preview_text")
    check_text(request.consent, MAX_CONSENT_CHARS, "consent")
    if source == "reference" and not request.validate_only and not request.consent.strip():
        message = "a clone needs the speaker's consent; say who agreed and how"
        raise InvalidField("consent", message, "CONSENT_REQUIRED")
    return VoiceAbout(
        voice_id=check_voice_id(request.voice_id) if request.voice_id else "",
        kind=_KIND_OF_SOURCE[source],
        create_s=now_s,
        expire_s=check_ttl(request.ttl_seconds, now_s),
        display_name=voice.display_name,
        description=voice.description,
        languages=_check_languages(voice.languages),
        labels=check_labels(voice.labels, "voice.labels"),
        consent=request.consent,
        preview_text=voice.preview_text,
    )


def check_imported(request: voice_service_pb2.ImportVoiceRequest, about: VoiceAbout, now_s: float) -> VoiceAbout:
    """Check a file's metadata `about`, which may come from anywhere, and return it with a new id, time and expiry."""
    field = "voice_file"
    check_text(about.display_name, MAX_NAME_CHARS, field)
    check_text(about.description, MAX_DESCRIPTION_CHARS, field)
    check_text(about.consent, MAX_CONSENT_CHARS, field)
    check_text(about.preview_text, MAX_PREVIEW_CHARS, field)
    check_text(about.transcript, MAX_TRANSCRIPT_CHARS, field)
    check_text(about.model + about.fingerprint, MAX_NAME_CHARS, field)
    if about.kind == "cloned" and not about.consent.strip():
        raise InvalidField(field, "a clone without a consent; create it anew with one", "CONSENT_REQUIRED")
    voice_id = request.voice_id or about.voice_id
    return replace(
        about,
        voice_id=check_voice_id(voice_id, "voice_id" if request.voice_id else field),
        create_s=now_s,
        expire_s=check_ttl(request.ttl_seconds, now_s),
        languages=_check_languages(about.languages, field),
        labels=check_labels(about.labels, field),
    )


def check_voice_id(voice_id: str, field: str = "voice_id") -> str:
    if not _VOICE_ID.fullmatch(voice_id):
        raise InvalidField(
            field, f"{voice_id[:64]!r} is not 3 to 63 small letters, digits and hyphens, beginning with a letter"
        )
    return voice_id


def check_ttl(ttl_s: int, now_s: float) -> float | None:
    """Return when the voice expires, or None for never."""
    if ttl_s > MAX_TTL_S:
        raise InvalidField("ttl_seconds", f"{ttl_s} is over {MAX_TTL_S} (10 years); 0 means never")
    return now_s + ttl_s if ttl_s else None


def check_labels(labels: Mapping[str, str], field: str) -> dict[str, str]:
    if len(labels) > MAX_LABELS:
        raise InvalidField(field, f"{len(labels)} labels are over the limit of {MAX_LABELS}")
    for name, value in labels.items():
        if not name:
            raise InvalidField(field, "a label without a name")
        check_text(name, MAX_LABEL_NAME_CHARS, field)
        check_text(value, MAX_LABEL_CHARS, field)
    return dict(labels)


def check_request(request_id: str, message: object) -> RequestKey | None:
    """Return the key by which a repeated request is recognized, or None without an id. `message`: the whole request."""
    if not request_id:
        return None
    if len(request_id) > MAX_REQUEST_ID_CHARS or not request_id.isprintable():
        raise InvalidField("request_id", f"use at most {MAX_REQUEST_ID_CHARS} printable characters")
    data: bytes = message.SerializeToString(deterministic=True)  # type: ignore[attr-defined]
    return RequestKey(request_id, hashlib.sha256(data).digest())


@dataclass(frozen=True, slots=True)
class VoiceFilter:
    """A checked ListVoicesRequest."""

    page_size: int
    after: str
    kind: int
    language: str
    labels: dict[str, str]
    served_languages: tuple[str, ...]

    def fits(self, about: VoiceAbout) -> bool:
        """Return whether a stored voice matches. One without languages counts as speaking all that are served."""
        if self.kind and self.kind != _KINDS[about.kind]:
            return False
        if self.language:
            codes = map(language_code, about.languages or self.served_languages)
            if language_code(self.language) not in codes:
                return False
        return self.labels.items() <= about.labels.items()


def check_list(
    request: voice_service_pb2.ListVoicesRequest, presets: tuple[str, ...], served_languages: tuple[str, ...]
) -> VoiceFilter:
    """Check a ListVoicesRequest. A page token is the last voice id of a page, so it works on every server."""
    if request.page_size > MAX_PAGE_SIZE:
        raise InvalidField("page_size", f"{request.page_size} is over {MAX_PAGE_SIZE}")
    if request.kind not in voice_pb2.VoiceKind.values():
        raise InvalidField("kind", f"{request.kind} is not a VoiceKind")
    if request.page_token and request.page_token not in presets and not _VOICE_ID.fullmatch(request.page_token):
        raise InvalidField("page_token", "not a token of this server; begin again without one")
    language = "" if request.language.lower() == "auto" else request.language
    check_text(language, MAX_LABEL_NAME_CHARS, "language")
    labels = check_labels(request.labels, "labels")
    return VoiceFilter(
        request.page_size or DEFAULT_PAGE_SIZE, request.page_token, request.kind, language, labels, served_languages
    )


def to_proto(about: VoiceAbout) -> voice_pb2.Voice:
    voice = voice_pb2.Voice(kind=_KINDS[about.kind], **{name: getattr(about, name) for name in _TOLD})
    voice.create_time.FromNanoseconds(int(about.create_s * 1_000_000_000))
    if about.expire_s is not None:
        voice.expire_time.FromNanoseconds(int(about.expire_s * 1_000_000_000))
    return voice


def _check_languages(languages: Sequence[str], field: str = "voice.languages") -> tuple[str, ...]:
    if len(languages) > MAX_LANGUAGES:
        raise InvalidField(field, f"{len(languages)} languages are over the limit of {MAX_LANGUAGES}")
    for name in languages:
        if not name.strip():
            raise InvalidField(field, "an empty language; use names such as english")
        check_text(name, MAX_LABEL_NAME_CHARS, field)
    return tuple(languages)
