"""Errors of the server, or of the connection to it, as exceptions that a caller can act on.

The server explains an error with google.rpc details, either as the RPC's status or inside an `UtteranceDone`; both are
translated here. The comment above `TextToSpeechService` in the proto says what each code means.
"""

import difflib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

DOMAIN = "sonorant.tts.v1"  # in ErrorInfo: the error comes from a Sonorant server itself
ENGINE_STARTING = "ENGINE_STARTING"  # ErrorInfo.reason of a server that loads its models
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class SpeechError(Exception):
    """Base of the errors below; raised itself if none of them fits (for a bug in the server, for example)."""

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        reason: str = "",
        fields: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason  # ErrorInfo.reason in SCREAMING_SNAKE_CASE, "" if the server gave none
        self.fields = dict(fields or {})  # path of each wrong field -> what is wrong with it
        self.retry_after_s = retry_after_s
        self.request_id = request_id  # of the call, as the server's log has it; "" if no server said it

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors are sent from process to process, and copied, as they are."""
        kept = {name: getattr(self, name) for name in ("reason", "fields", "retry_after_s", "request_id")}
        return partial(type(self), **kept), (self.code, str(self)), vars(self)  # with notes


class InvalidRequest(SpeechError):
    """The request is wrong, or this server or its checkpoint does not support it. Do not send it again unchanged."""


class AccessDenied(SpeechError):
    """The API key is missing, unknown, or not allowed to do this."""


class VoiceNotFound(SpeechError):
    """The server has no such voice."""


class DictionaryNotFound(SpeechError):
    """The server has no such pronunciation dictionary, or not in this version."""


class ServerBusy(SpeechError):
    """The server is full, or a limit is reached; try again after `retry_after_s`."""


class ServerUnavailable(SpeechError):
    """There is no server, the connection was lost, or the server is starting, restarting or draining. Try again, here
    or on another server. `code` is UNAVAILABLE, even if a balancer reported the loss with another code."""


def error_text(error: Exception) -> str:
    """Return the message of an error, for people. Errors of the operating system: the file and the reason, without the
    number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


class TimedOut(SpeechError):
    """The call took longer than its time limit."""


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
    grpc.StatusCode.DEADLINE_EXCEEDED: TimedOut,
}


def from_rpc_error(error: grpc.aio.AioRpcError, target: str) -> SpeechError:
    """The SpeechError for an error that an RPC to `target` raised."""
    status, code, details = _status(error), error.code(), error.details() or ""
    if status is not None and (_reason(error) or code in _KINDS):
        return from_status(status)
    if code is grpc.StatusCode.UNAVAILABLE:  # without details, so it does not come from a Sonorant server
        message = f"no answer from a Sonorant server at {target} ({details}); {_hint(target, details)}"
        return ServerUnavailable(code, message)
    if _is_too_large(error):
        return InvalidRequest(grpc.StatusCode.INVALID_ARGUMENT, details)
    if code in _KINDS:
        return _KINDS.get(code, SpeechError)(code, details or code.name)
    # If the caller itself cancels a call, grpc raises CancelledError; so the status CANCELLED is a loss, too.
    lost = ": ".join(word for word in (code.name, details) if word)
    message = f"the call to the server at {target} was lost ({lost}); try again"
    return ServerUnavailable(grpc.StatusCode.UNAVAILABLE, message)


def unknown_name(field: str, name: str, known: Sequence[str]) -> "InvalidRequest":
    """The error for a name that is none of those known, with the nearest of these."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known)}"
    message = f"{field}: there is no {name!r}; {hint}"
    return InvalidRequest(grpc.StatusCode.INVALID_ARGUMENT, message, reason="UNKNOWN_NAME", fields={field: message})


def session_is_lost(target: str) -> SpeechError:
    message = f"no server at {target} took the session in time after it was lost"
    return ServerUnavailable(grpc.StatusCode.UNAVAILABLE, message)


def session_is_over() -> SpeechError:
    message = "the session is over: nothing more can be sent; its events say why"
    return SpeechError(grpc.StatusCode.FAILED_PRECONDITION, message)


def session_is_finished() -> SpeechError:
    message = "nothing can be sent after finish(), not even cancel(); use end() to keep the session open"
    return SpeechError(grpc.StatusCode.FAILED_PRECONDITION, message)


def call_was_cancelled() -> SpeechError:
    message = (
        "the call was cancelled: its session was left, its client closed, or a task cancelled while it read or wrote"
    )
    return SpeechError(grpc.StatusCode.CANCELLED, message)


def is_lost(error: grpc.aio.AioRpcError) -> bool:
    """Whether the connection or the server is lost, as opposed to a server that refuses something.

    The server explains every refusal with ErrorInfo. A dead server looks different through each balancer: UNAVAILABLE
    directly, CANCELLED or INTERNAL through HAProxy, INTERNAL through Envoy and nginx. So any status without ErrorInfo
    is a loss.
    UNAVAILABLE with ErrorInfo is one, too: the server is shutting down, or its engine has failed. The one refusal
    without ErrorInfo is gRPC's own, of messages over its size limit; every other server would refuse them as well.
    """
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return True
    return _reason(error) == "" and not _is_too_large(error)


def is_full(error: grpc.aio.AioRpcError) -> bool:
    """Whether the server is full now, but may have room soon."""
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def is_starting(error: grpc.aio.AioRpcError | None) -> bool:
    """Whether a server has answered that it is still starting."""
    return error is not None and _reason(error) == ENGINE_STARTING


def _is_too_large(error: grpc.aio.AioRpcError) -> bool:
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "message larger than max" in (error.details() or "")


def _reason(error: grpc.aio.AioRpcError) -> str:
    """ErrorInfo.reason; "" if a Sonorant server did not send this error."""
    status = _status(error)
    info = error_details_pb2.ErrorInfo()
    return info.reason if status is not None and _unpack(status, info) and info.domain == DOMAIN else ""


def _status(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    """Return the status in the error's details. None if its code is not that of the error: a balancer may change the
    code and keep the details."""
    try:
        status: status_pb2.Status | None = rpc_status.from_call(error)
    except ValueError:
        return None
    return status


def _hint(target: str, details: str) -> str:
    """What to do about a connection that failed, judged by gRPC's `details` about it."""
    scheme, is_url, rest = target.partition("://")
    if is_url and scheme in ("http", "https"):
        tls = ", with SONORANT_CLIENT_TLS=1" if scheme == "https" else ""
        return f"give host and port instead of a URL: {rest.rstrip('/')}{tls}"
    if ":" not in target:  # gRPC takes 443 then, which nobody expects
        return f"give the port, too: {target}:50051"
    if "HTTP proxy" in details:
        return "the proxy in http_proxy refused this; if the server is in your own network, add its host to no_proxy"
    if "http1.x" in details:
        return "that port speaks HTTP, as a gateway does; give the port of the server itself"
    if "lookup failed" in details:
        return "there is no host of this name"
    if "certificate has expired" in details:
        return "the server needs a new certificate"
    if "Hostname Verification" in details:
        return "its certificate is for other names; call it by one of them"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return "no known authority has signed its certificate; give the PEM file of its authority in SONORANT_CLIENT_CA"
    if "WRONG_VERSION_NUMBER" in details:
        return "it does not use TLS; leave out SONORANT_CLIENT_TLS, _CA, _CERTIFICATE and _KEY"
    if "Socket closed" in details or "reset by peer" in details:
        return (
            "it was stopped, or it needs TLS: set SONORANT_CLIENT_CA to the PEM file of its authority, or "
            "SONORANT_CLIENT_TLS=1"
        )
    return "start one with: sonorant-server"


def from_status(status: status_pb2.Status) -> SpeechError:
    """The SpeechError for a google.rpc.Status."""
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    info = error_details_pb2.ErrorInfo()
    request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    call = error_details_pb2.RequestInfo()
    has_retry = _unpack(status, retry)
    _unpack(status, info)
    _unpack(status, request)
    _unpack(status, call)
    kind = DictionaryNotFound if info.reason == "DICTIONARY_NOT_FOUND" else _KINDS.get(code, SpeechError)
    return kind(
        code,
        status.message or code.name,
        reason=info.reason,
        fields={violation.field: violation.description for violation in request.field_violations},
        retry_after_s=retry.retry_delay.ToTimedelta().total_seconds() if has_retry else None,
        request_id=call.request_id,
    )


def _unpack(status: status_pb2.Status, into: Message) -> bool:
    return any(detail.Unpack(into) for detail in status.details)
