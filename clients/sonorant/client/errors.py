"""What went wrong at the server or on the way to it, as exceptions a caller can act on.

The server explains an error with google.rpc details, either as the RPC's status or inside an `UtteranceDone`; both end
up here. Which code means what is written above `TextToSpeechService` in the proto.
"""

from collections.abc import Mapping

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

DOMAIN = "sonorant.tts.v1"  # of ErrorInfo: the server itself has said this
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class SpeechError(Exception):
    """Base of the errors below, and the error itself where none of them fits (a bug in the server, say)."""

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        reason: str = "",
        fields: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason  # the server's SCREAMING_SNAKE word for it, "" if it gave none
        self.fields = dict(fields or {})  # path of each wrong field -> what is wrong with it
        self.retry_after_s = retry_after_s


class InvalidRequest(SpeechError):
    """The request is wrong, or asks for what this server or its checkpoint does not do. Sending it again is no use."""


class AccessDenied(SpeechError):
    """The API key is missing, unknown, or not for what was asked."""


class VoiceNotFound(SpeechError):
    """The server has no such voice."""


class ServerBusy(SpeechError):
    """All places are taken; try again after `retry_after_s`."""


class ServerUnavailable(SpeechError):
    """No server there, connection gone, or the server is starting, restarting or going; try again, or elsewhere. `code`
    is UNAVAILABLE, whatever a balancer made of the loss."""


def in_words(error: Exception) -> str:
    """The error for people: of the operating system's without the number, the name first if it is about a file."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


_KINDS: dict[grpc.StatusCode, type[SpeechError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.ALREADY_EXISTS: InvalidRequest,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.UNIMPLEMENTED: InvalidRequest,
    grpc.StatusCode.UNAUTHENTICATED: AccessDenied,
    grpc.StatusCode.PERMISSION_DENIED: AccessDenied,
    grpc.StatusCode.NOT_FOUND: VoiceNotFound,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ServerBusy,
    grpc.StatusCode.UNAVAILABLE: ServerUnavailable,
}


def from_rpc_error(error: grpc.aio.AioRpcError, target: str) -> SpeechError:
    """The typed form of what an RPC to `target` raised."""
    status, code, details = _status(error), error.code(), error.details() or ""
    if status is not None and (_reason(error) or code in _KINDS):
        return from_status(status)
    if code is grpc.StatusCode.UNAVAILABLE:  # no details: not the server's own words
        message = f"no answer from a Sonorant server at {target} ({details}); {_hint(target, details)}"
        return ServerUnavailable(code, message)
    if _is_too_large(error):
        return InvalidRequest(grpc.StatusCode.INVALID_ARGUMENT, details)
    if code in _KINDS or code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return _KINDS.get(code, SpeechError)(code, details or code.name)
    # A call that the caller himself cancels is told as CancelledError, so CANCELLED is a loss, too.
    lost = ": ".join(word for word in (code.name, details) if word)
    message = f"the call to the server at {target} was lost ({lost}); try again"
    return ServerUnavailable(grpc.StatusCode.UNAVAILABLE, message)


def nothing_more() -> SpeechError:
    message = "the session is over: nothing more can be sent; its events say why"
    return SpeechError(grpc.StatusCode.FAILED_PRECONDITION, message)


def finished() -> SpeechError:
    message = "finish() was called: nothing more can be sent, cancel() included; end() leaves the session open"
    return SpeechError(grpc.StatusCode.FAILED_PRECONDITION, message)


def cancelled() -> SpeechError:
    message = "the call was cancelled: its session was left, or a task was cancelled while it read or wrote"
    return SpeechError(grpc.StatusCode.CANCELLED, message)


def is_lost(error: grpc.aio.AioRpcError) -> bool:
    """Whether it is the connection or the server that is gone, and not the server that has refused something.

    The server explains all that it refuses (ErrorInfo). A dead one looks different through each balancer: UNAVAILABLE
    directly, CANCELLED through HAProxy, INTERNAL through Envoy and nginx. So any status without the server's words is a
    loss, and so is UNAVAILABLE with them: the server goes, or its engine does. Only messages over gRPC's limit are
    refused without a word of ours, and would be elsewhere.
    """
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return True
    return _reason(error) == "" and not _is_too_large(error)


def is_refusal(error: grpc.aio.AioRpcError) -> bool:
    """Whether the server has no place now, but may have one soon."""
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def _is_too_large(error: grpc.aio.AioRpcError) -> bool:
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "message larger than max" in (error.details() or "")


def _reason(error: grpc.aio.AioRpcError) -> str:
    """The server's word for it; "" if these are not its words."""
    status = _status(error)
    info = error_details_pb2.ErrorInfo()
    return info.reason if status is not None and _unpack(status, info) and info.domain == DOMAIN else ""


def _status(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    """Its details, if they belong to it: a balancer may change the code and leave the details."""
    try:
        status: status_pb2.Status | None = rpc_status.from_call(error)
    except ValueError:
        return None
    return status


def _hint(target: str, details: str) -> str:
    """What to do about a connection that did not come about, by gRPC's words about it."""
    scheme, is_url, rest = target.partition("://")
    if is_url and scheme in ("http", "https"):
        tls = ", with SONORANT_CLIENT_TLS=1" if scheme == "https" else ""
        return f"servers have no URL: {rest.rstrip('/')}{tls}"
    if ":" not in target:  # gRPC takes 443 then, which is nobody's guess
        return f"no port was given: {target}:50051"
    if "http1.x" in details:
        return "it speaks HTTP, as a gateway does; give the port of the server itself"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return "its certificate is not of a known authority; give that one's PEM file in SONORANT_CLIENT_CA"
    if "WRONG_VERSION_NUMBER" in details:
        return "it speaks no TLS; leave out SONORANT_CLIENT_TLS, _CA, _CERTIFICATE and _KEY"
    if "Socket closed" in details or "reset by peer" in details:
        return "it has ended, or wants TLS: SONORANT_CLIENT_CA=PEM-FILE of its authority, or SONORANT_CLIENT_TLS=1"
    return "start one with: sonorant-server"


def from_status(status: status_pb2.Status) -> SpeechError:
    """The typed form of a google.rpc.Status."""
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    info = error_details_pb2.ErrorInfo()
    request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    has_retry = _unpack(status, retry)
    _unpack(status, info)
    _unpack(status, request)
    return _KINDS.get(code, SpeechError)(
        code,
        status.message or code.name,
        reason=info.reason,
        fields={violation.field: violation.description for violation in request.field_violations},
        retry_after_s=retry.retry_delay.ToTimedelta().total_seconds() if has_retry else None,
    )


def _unpack(status: status_pb2.Status, into: Message) -> bool:
    return any(detail.Unpack(into) for detail in status.details)
