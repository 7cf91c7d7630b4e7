"""Every error that the service raises on purpose. `status.py` maps them to gRPC statuses; nothing here knows gRPC.

Callers see the messages: each says what was wrong, where, and what to do.
"""

from collections.abc import Mapping
from typing import Any


class RequestError(Exception):
    """Base of all errors below."""

    metadata: Mapping[str, str] = {}  # ErrorInfo.metadata: numbers for programs, which need not parse the message


class InvalidField(RequestError):
    """A field of the request is invalid. `field` is its path in the request message."""

    def __init__(
        self, field: str, message: str, reason: str = "INVALID_FIELD", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{field}: {message}")
        self.metadata = metadata or {}
        self.field = field
        self.description = message
        self.reason = reason


class NotServed(InvalidField):
    """A field or value is part of the contract, but this version or this checkpoint does not serve it."""

    def __init__(self, field: str, message: str, reason: str = "NOT_SERVED_YET") -> None:
        super().__init__(field, message, reason)


class MethodNotServed(RequestError):
    """An RPC that this server does not serve with its current settings."""

    def __init__(self, message: str, reason: str = "NOT_SERVED_YET") -> None:
        super().__init__(message)
        self.reason = reason


class VoiceNotFound(RequestError):
    def __init__(self, voice_id: str, *, path: str = "", hint: str = "ListVoices tells which there are") -> None:
        """`path`: the field that names the voice, if the caller could not tell otherwise."""
        self.voice_id = voice_id[:64]
        super().__init__(f"{path and f'{path}: '}no voice {self.voice_id!r}; {hint}")


class VoiceUnusable(RequestError):
    """The voice exists but cannot be used in this way; `reason` says why."""

    def __init__(self, voice_id: str, message: str, reason: str) -> None:
        super().__init__(message)
        self.voice_id = voice_id
        self.reason = reason


class VoiceExists(RequestError):
    def __init__(self, voice_id: str, *, is_preset: bool = False) -> None:
        there, way_out = ("preset", "") if is_preset else ("voice", ", or delete it first")
        super().__init__(f"a {there} {voice_id!r} exists already; choose another id{way_out}")
        self.voice_id = voice_id


class RequestIdReused(RequestError):
    def __init__(self, request_id: str) -> None:
        super().__init__(f"request_id {request_id!r} was used for another voice; use a new one for each voice")


class VoiceQuotaReached(RequestError):
    """There is no room for another voice; `subject` says where. Trying again later does not help."""

    def __init__(self, subject: str, message: str) -> None:
        super().__init__(message)
        self.subject = subject


class VoiceDamaged(RequestError):
    def __init__(self, voice_id: str, what: str) -> None:
        super().__init__(f"the stored voice {voice_id!r} is damaged: {what}; delete it and create it again")
        self.voice_id = voice_id


class VoiceStoreFailed(RequestError):
    """The store of voices cannot be read or written now."""


class DictionaryNotFound(RequestError):
    def __init__(
        self, dictionary_id: str, version: int = 0, path: str = "", hint: str = "ListDictionaries tells which there are"
    ) -> None:
        """`path`: the field that names the dictionary, if the caller could not tell otherwise."""
        self.dictionary_id = dictionary_id[:64]
        self.field = path
        named = f"{self.dictionary_id!r}" + (f" in version {version}" if version else "")
        super().__init__(f"{path and f'{path}: '}no dictionary {named}; {hint}")


class DictionaryQuotaReached(RequestError):
    """There is no room for another dictionary of the caller. Trying again later does not help."""

    subject = "dictionaries of this owner"


class ConfigRequired(RequestError):
    """`Speak` did not begin with a config."""


class MalformedMessage(RequestError):
    """The bytes of a request are not a valid message of the contract."""


class MessageTooLarge(RequestError):
    """A request message has more bytes than this server accepts."""

    def __init__(self, num_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"a message of {num_bytes} bytes is over the limit of {limit_bytes}; send text in several messages, and a "
            "long recording with UploadVoice"
        )
        self.metadata = {"bytes": str(num_bytes), "limit_bytes": str(limit_bytes)}


class AudioTooLong(RequestError):
    """The audio does not fit into one response."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"the audio is longer than the {limit_bytes} bytes that fit into one response; use SynthesizeStream, or "
            "limit it with config.max_audio_ms"
        )
        self.metadata = {"limit_bytes": str(limit_bytes), "use_instead": "SynthesizeStream"}


class ServiceUnknown(RequestError):
    """Health was asked about a service that it does not know."""


class Unauthenticated(RequestError):
    """The call came without an API key, or with an unknown one."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class VoiceNotAllowed(RequestError):
    """The caller's API key does not allow this voice."""


class LimitReached(RequestError):
    """All places of one kind are taken. `subject` names the kind; `retry_s`: until one is free, if that is known."""

    def __init__(self, subject: str, message: str, retry_s: float | None = None) -> None:
        super().__init__(message)
        self.subject = subject
        self.retry_s = retry_s


class TooSlow(RequestError):
    """Nobody can listen to this checkpoint on this machine while it speaks: it takes longer than what it says."""


class SlowReader(RequestError):
    """The caller stopped reading for so long that its call was ended."""


class UtteranceFailed(RequestError):
    """An utterance failed, and the call has no response to report that; `status` becomes the status of the call."""

    def __init__(self, status: Any) -> None:
        super().__init__(status.message)
        self.status = status


class CheckpointDiffers(RequestError):
    """The utterance to be resumed was begun with the weights of another checkpoint."""


class ServerStarting(RequestError):
    """The server has not loaded its models yet."""

    def __init__(self) -> None:
        super().__init__("the server is starting; try again until health says SERVING")


class Draining(RequestError):
    """The server is draining and takes no new calls."""
