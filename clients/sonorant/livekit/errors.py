"""Translates a SpeechError into LiveKit's exceptions, which say whether a retry makes sense."""

import grpc

from livekit.agents import APIConnectionError, APIError, APIStatusError, APITimeoutError
from sonorant.client.errors import ServerUnavailable, SpeechError

_HTTP_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNIMPLEMENTED: 501,
}


def api_error(error: SpeechError, request_id: str) -> APIError:
    if isinstance(error, ServerUnavailable):
        return APIConnectionError(str(error))
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return APITimeoutError(str(error))
    status_code = _HTTP_STATUS.get(error.code, 500)
    body = {"reason": error.reason, "fields": error.fields} if error.reason else None
    return APIStatusError(
        str(error), status_code=status_code, request_id=request_id, body=body, retryable=status_code in (429, 500)
    )
