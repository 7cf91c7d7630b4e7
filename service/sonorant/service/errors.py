"""Every error the service raises on purpose. `status.py` says which gRPC status each becomes; nothing here knows gRPC.

The message of each is shown to the caller: what was wrong, where, and what to do.
"""

from collections.abc import Mapping
from typing import Any


class RequestError(Exception):
    """Base of all errors below."""

    metadata: Mapping[str, str] = {}  # of ErrorInfo: numbers that a program need not read out of the message


class InvalidField(RequestError):
    """A field of the request cannot be used. `field` is its path in the request message."""

    def __init__(
        self, field: str, message: str, reason: str = "INVALID_FIELD", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{field}: {message}")
        self.metadata = metadata or {}
        self.field = field
        self.description = message
        self.reason = reason


class NotServed(InvalidField):
    """A field, or a value of it, belongs to the contract but not to what this version or this checkpoint serves."""

    def __init__(self, field: str, message: str, reason: str = "NOT_SERVED_YET") -> None:
        super().__init__(field, message, reason)


class MethodNotServed(RequestError):
    """A whole RPC that this server, as it was started, does not serve."""

    def __init__(self, message: str, reason: str = "NOT_SERVED_YET") -> None:
        super().__init__(message)
        self.reason = reason


class VoiceNotFound(RequestError):
    def __init__(self, voice_id: str, *, path: str = "", hint: str = "ListVoices tells which there are") -> None:
        """`path`: of the field that names the voice, where it is not plain."""
        self.voice_id = voice_id[:64]
        super().__init__(f"{path and f'{path}: '}no voice {self.voice_id!r}; {hint}")


class VoiceUnusable(RequestError):
    """The voice is there and cannot be used so; `reason` says why."""

    def __init__(self, voice_id: str, message: str, reason: str) -> None:
        super().__init__(message)
        self.voice_id = voice_id
        self.reason = reason


class VoiceExists(RequestError):
    def __init__(self, voice_id: str, *, is_preset: bool = False) -> None:
        there, way_out = ("preset", "") if is_preset else ("voice", ", or delete it first")
        super().__init__(f"there is a {there} {voice_id!r} already; choose another id{way_out}")
        self.voice_id = voice_id


class RequestIdReused(RequestError):
    def __init__(self, request_id: str) -> None:
        super().__init__(f"request_id {request_id!r} has made a voice with another request; use a new one each time")


class VoiceQuotaReached(RequestError):
    """There is no room for another voice; `subject` says where. Waiting is no use."""

    def __init__(self, subject: str, message: str) -> None:
        super().__init__(message)
        self.subject = subject


class VoiceDamaged(RequestError):
    def __init__(self, voice_id: str, what: str) -> None:
        super().__init__(f"the stored voice {voice_id!r} is damaged: {what}; delete it and create it again")
        self.voice_id = voice_id


class VoiceStoreFailed(RequestError):
    """What keeps the voices cannot be read or written now."""


class ConfigRequired(RequestError):
    """`Speak` did not begin with a config."""


class MalformedMessage(RequestError):
    """The bytes of a request are not a message of this contract."""


class MessageTooLarge(RequestError):
    """One request message has more bytes than this server takes."""

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
    """Health was asked about something that it is not told of."""


class Unauthenticated(RequestError):
    """No API key came with the call, or one that nobody has."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class VoiceNotAllowed(RequestError):
    """The caller's API key is not for this voice."""


class LimitReached(RequestError):
    """All places of one kind are taken; `subject` names the kind, `retry_s` says when one is free, if that is known."""

    def __init__(self, subject: str, message: str, retry_s: float | None = None) -> None:
        super().__init__(message)
        self.subject = subject
        self.retry_s = retry_s


class SlowReader(RequestError):
    """The caller stopped reading and its place is needed."""


class UtteranceFailed(RequestError):
    """An utterance failed in a call that has no other way to say so; `status` is what was said about it."""

    def __init__(self, status: Any) -> None:
        super().__init__(status.message)
        self.status = status


class CheckpointDiffers(RequestError):
    """An utterance cannot be continued with other weights."""


class Draining(RequestError):
    """The server is about to go and takes nothing new."""
