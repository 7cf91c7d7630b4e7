"""The one table from errors to gRPC statuses with google.rpc details. No other module knows status codes."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2, error_details_pb2, status_pb2

from sonorant.engine import (
    CodecDiffers,
    EncodingFailed,
    EngineOverloaded,
    EngineUnavailable,
    InvalidSynthesis,
    StreamFailed,
)
from sonorant.service.errors import (
    AudioTooLong,
    CheckpointDiffers,
    ConfigRequired,
    DictionaryNotFound,
    DictionaryQuotaReached,
    Draining,
    InvalidField,
    LimitReached,
    MalformedMessage,
    MessageTooLarge,
    MethodNotServed,
    NotServed,
    RequestError,
    RequestIdReused,
    ServerStarting,
    ServiceUnknown,
    SlowReader,
    TooSlow,
    Unauthenticated,
    UtteranceFailed,
    VoiceDamaged,
    VoiceExists,
    VoiceNotAllowed,
    VoiceNotFound,
    VoiceQuotaReached,
    VoiceStoreFailed,
    VoiceUnusable,
)

DOMAIN = "sonorant.tts.v1"
RETRY_SOON_MS = 500  # a place may become free whenever an utterance ends
RETRY_LATER_MS = 2000  # workers are restarting, or the client has to find another server

# A status travels as metadata. Many clients accept 8 KiB of it, and beyond that see a broken call instead of the error.
# The message is sent twice, once with three characters per byte, and a description is as long.
MAX_MESSAGE_BYTES = 1024
MAX_NAME_BYTES = 256  # of a field, a voice, a limit

Details = Callable[[Any], Iterable[Any]]


def _clipped(text: str, max_bytes: int = MAX_MESSAGE_BYTES) -> str:
    """Cut the text to `max_bytes` of UTF-8: it may quote what callers sent, which can be of any length."""
    data = text.encode(errors="replace")
    return data.decode() if len(data) <= max_bytes else data[: max_bytes - 3].decode(errors="ignore") + "..."


def _bad_request(error: InvalidField | InvalidSynthesis) -> Iterable[Any]:
    description = error.description if isinstance(error, InvalidField) else str(error)
    violation = error_details_pb2.BadRequest.FieldViolation(
        field=_clipped(error.field, MAX_NAME_BYTES), description=_clipped(description)
    )
    yield error_details_pb2.BadRequest(field_violations=[violation])


def _retry(delay_ms: int) -> Any:
    return error_details_pb2.RetryInfo(retry_delay={"seconds": delay_ms // 1000, "nanos": delay_ms % 1000 * 1_000_000})


def _quota(subject: str, error: Exception, retry_s: float | None = None) -> Iterable[Any]:
    violation = error_details_pb2.QuotaFailure.Violation(subject=subject, description=_clipped(str(error)))
    yield error_details_pb2.QuotaFailure(violations=[violation])
    yield _retry(RETRY_SOON_MS if retry_s is None else math.ceil(retry_s * 1000))


def _overloaded(error: EngineOverloaded) -> Iterable[Any]:
    return _quota("streams", error, max(RETRY_SOON_MS / 1000, error.retry_s or 0.0))


def _config_required(error: ConfigRequired) -> Iterable[Any]:
    violation = error_details_pb2.PreconditionFailure.Violation(
        type="CONFIG_REQUIRED", subject="SpeakRequest.config", description=_clipped(str(error))
    )
    yield error_details_pb2.PreconditionFailure(violations=[violation])


def _voice(error: VoiceNotFound | VoiceUnusable | VoiceExists | VoiceDamaged) -> Iterable[Any]:
    return _resource("Voice", error.voice_id, error)


def _dictionary(error: DictionaryNotFound) -> Iterable[Any]:
    return _resource("Dictionary", error.dictionary_id, error)


def _resource(kind: str, name: str, error: RequestError) -> Iterable[Any]:
    name, description = _clipped(name, MAX_NAME_BYTES), _clipped(str(error))
    yield error_details_pb2.ResourceInfo(resource_type=f"{DOMAIN}.{kind}", resource_name=name, description=description)


def _voice_unusable(error: VoiceUnusable) -> Iterable[Any]:
    violation = error_details_pb2.PreconditionFailure.Violation(
        type=error.reason, subject=_clipped(error.voice_id, MAX_NAME_BYTES), description=_clipped(str(error))
    )
    yield error_details_pb2.PreconditionFailure(violations=[violation])
    yield from _voice(error)


def _full(error: VoiceQuotaReached | DictionaryQuotaReached) -> Iterable[Any]:
    violation = error_details_pb2.QuotaFailure.Violation(subject=error.subject, description=_clipped(str(error)))
    yield error_details_pb2.QuotaFailure(violations=[violation])


@dataclass(frozen=True, slots=True)
class _Kind:
    code: int
    reason: str  # ErrorInfo.reason; if empty, the error's own `reason` is used
    details: Details = lambda _: ()


# The first match counts, so a subclass stands before its base.
_TABLE: tuple[tuple[type[Exception], _Kind], ...] = (
    (NotServed, _Kind(code_pb2.UNIMPLEMENTED, "", _bad_request)),
    (InvalidField, _Kind(code_pb2.INVALID_ARGUMENT, "", _bad_request)),
    (MethodNotServed, _Kind(code_pb2.UNIMPLEMENTED, "")),
    (MalformedMessage, _Kind(code_pb2.INVALID_ARGUMENT, "MALFORMED_MESSAGE")),
    (Unauthenticated, _Kind(code_pb2.UNAUTHENTICATED, "")),
    (VoiceNotAllowed, _Kind(code_pb2.PERMISSION_DENIED, "VOICE_NOT_ALLOWED")),
    (ServiceUnknown, _Kind(code_pb2.NOT_FOUND, "SERVICE_UNKNOWN")),
    (VoiceNotFound, _Kind(code_pb2.NOT_FOUND, "VOICE_NOT_FOUND", _voice)),
    (VoiceUnusable, _Kind(code_pb2.FAILED_PRECONDITION, "", _voice_unusable)),
    (CheckpointDiffers, _Kind(code_pb2.FAILED_PRECONDITION, "CHECKPOINT_DIFFERS")),
    (VoiceExists, _Kind(code_pb2.ALREADY_EXISTS, "VOICE_EXISTS", _voice)),
    (RequestIdReused, _Kind(code_pb2.ALREADY_EXISTS, "REQUEST_ID_REUSED")),
    (VoiceQuotaReached, _Kind(code_pb2.RESOURCE_EXHAUSTED, "VOICE_QUOTA_REACHED", _full)),
    (DictionaryNotFound, _Kind(code_pb2.NOT_FOUND, "DICTIONARY_NOT_FOUND", _dictionary)),
    (DictionaryQuotaReached, _Kind(code_pb2.RESOURCE_EXHAUSTED, "DICTIONARY_QUOTA_REACHED", _full)),
    (VoiceDamaged, _Kind(code_pb2.DATA_LOSS, "VOICE_DAMAGED", _voice)),
    (VoiceStoreFailed, _Kind(code_pb2.UNAVAILABLE, "VOICE_STORE_FAILED", lambda _: [_retry(RETRY_LATER_MS)])),
    (ConfigRequired, _Kind(code_pb2.FAILED_PRECONDITION, "CONFIG_REQUIRED", _config_required)),
    (MessageTooLarge, _Kind(code_pb2.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")),
    (AudioTooLong, _Kind(code_pb2.OUT_OF_RANGE, "AUDIO_TOO_LONG")),
    (LimitReached, _Kind(code_pb2.RESOURCE_EXHAUSTED, "LIMIT_REACHED", lambda e: _quota(e.subject, e, e.retry_s))),
    (TooSlow, _Kind(code_pb2.FAILED_PRECONDITION, "TOO_SLOW")),
    (SlowReader, _Kind(code_pb2.RESOURCE_EXHAUSTED, "SLOW_READER")),
    (EngineOverloaded, _Kind(code_pb2.RESOURCE_EXHAUSTED, "ENGINE_OVERLOADED", _overloaded)),
    (ServerStarting, _Kind(code_pb2.UNAVAILABLE, "ENGINE_STARTING", lambda _: [_retry(RETRY_SOON_MS)])),
    (Draining, _Kind(code_pb2.UNAVAILABLE, "DRAINING", lambda _: [_retry(RETRY_LATER_MS)])),
    (EngineUnavailable, _Kind(code_pb2.UNAVAILABLE, "ENGINE_UNAVAILABLE", lambda _: [_retry(RETRY_LATER_MS)])),
    (CodecDiffers, _Kind(code_pb2.FAILED_PRECONDITION, "CODEC_DIFFERS")),
    (InvalidSynthesis, _Kind(code_pb2.INVALID_ARGUMENT, "INVALID_FIELD", _bad_request)),
    (StreamFailed, _Kind(code_pb2.INTERNAL, "STREAM_FAILED")),
    (EncodingFailed, _Kind(code_pb2.INTERNAL, "ENCODING_FAILED")),
)


def is_expected(error: BaseException) -> bool:
    """Return whether the table lists the error. Any other error is a bug, to be logged with its traceback."""
    return isinstance(error, UtteranceFailed) or _kind(error) is not None


def to_status(error: BaseException, request_id: str) -> status_pb2.Status:
    """Return the status for the caller. Of an unexpected error, it reveals only the request id."""
    if isinstance(error, UtteranceFailed):
        return error.status
    kind = _kind(error)
    if kind is None:
        kind, message = _Kind(code_pb2.INTERNAL, "INTERNAL"), f"internal error, request_id={request_id}"
    else:
        message = _clipped(str(error))
    status = status_pb2.Status(code=kind.code, message=message)
    details = [
        error_details_pb2.ErrorInfo(
            reason=kind.reason or getattr(error, "reason", ""),
            domain=DOMAIN,
            metadata=getattr(error, "metadata", None),
        ),
        *kind.details(error),
        error_details_pb2.RequestInfo(request_id=request_id),
    ]
    for detail in details:
        status.details.add().Pack(detail)
    return status


def _kind(error: BaseException) -> _Kind | None:
    return next((kind for known, kind in _TABLE if isinstance(error, known)), None)
