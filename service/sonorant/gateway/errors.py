"""The errors that callers get, and the one table from gRPC statuses to HTTP statuses.

Errors have OpenAI's shape, `{"error": {message, type, param, code}}`, because most clients can read it. 422 is never
used, because the stock clients do not know it.
"""

import math
import re
from typing import Any

import grpc
from google.rpc import status_pb2

from sonorant.client import SpeechError
from sonorant.client.errors import from_status as speech_error

RETRY_DEFAULT_S = 1.0  # if the server gives no time

_STATUSES: dict[grpc.StatusCode, int] = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 400,
    grpc.StatusCode.ALREADY_EXISTS: 400,  # not 409, after which the OpenAI SDK retries
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 503,
}
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
_CODES = {"API_KEY_MISSING": "invalid_api_key", "API_KEY_UNKNOWN": "invalid_api_key"}
# The gateway's parameter for each path of a server's field. The longest match counts.
_PARAMS = {
    "text": "input",
    "config.voice.voice_id": "voice",
    "config.voice.reference.audio": "ref_audio",
    "config.voice.reference.transcript": "ref_text",
    "config.voice.speaker_embedding": "speaker_embedding",
    "config.voice.design": "instructions",
    "config.voice": "voice",
    "config.sampling.max_frames": "max_new_tokens",
    "config.audio.sample_rate_hz": "sample_rate",
    "config.audio.encoding": "response_format",
    "dictionary_id": "id",
    "config.sampling": "",
    "config": "",
}

# At the beginning of a server's message.
_PATH = re.compile(r"((?:config|text|voice|dictionary|max_lead_ms)[a-z_.\[\]0-9]*): ")


class Refusal(Exception):
    """An answer other than success; `message` is for the caller: what was wrong, where, what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """When to retry, in seconds and, for the OpenAI SDK, in milliseconds."""
        if self.retry_after_s is None:
            return {}
        return {
            "Retry-After": str(math.ceil(self.retry_after_s)),
            "retry-after-ms": str(math.ceil(self.retry_after_s * 1000)),
        }


def from_speech_error(error: SpeechError) -> Refusal:
    status = _STATUSES.get(error.code, 500)
    retry_after_s = error.retry_after_s
    if retry_after_s is None and status in (429, 503):
        retry_after_s = RETRY_DEFAULT_S
    if status == 503 and not error.reason:  # what gRPC says names addresses, and guesses what is wrong with them
        message = "the speech server was lost, and no other one is ready; try again soon"
        return Refusal(503, message, code="server_unavailable", retry_after_s=retry_after_s)
    param, message = None, str(error)
    if where := _PATH.match(message):
        param = param_of(where[1])
        message = f"{param}: {message[where.end() :]}"
    message = message.replace("ListVoices", "GET /v1/audio/voices")
    message = message.replace("ListDictionaries", "GET /v1/audio/dictionaries")
    code = _CODES.get(error.reason, error.reason.lower()) or None
    return Refusal(status, message, param=param, code=code, retry_after_s=retry_after_s)


def from_status(status: status_pb2.Status) -> Refusal:
    """The Refusal for an utterance that failed within a call."""
    return from_speech_error(speech_error(status))


def param_of(field: str) -> str:
    """The caller's parameter for a server's field: `temperature` for `config.sampling.temperature`, and for
    `config.synthesis.sampling.temperature`, its path in a session."""
    field = field.replace("config.synthesis", "config", 1)
    for path in sorted(_PARAMS, key=len, reverse=True):
        if field == path or field.startswith(f"{path}."):
            rest = field[len(path) :].lstrip(".")
            return _PARAMS[path] or rest or field
    return field
