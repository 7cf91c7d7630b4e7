"""Translates a SpeechError into Pipecat's error category, which says whether the service can still be used."""

import grpc

from pipecat.utils.errors import ErrorCategory
from sonorant.client.errors import (
    AccessDenied,
    InvalidRequest,
    ServerBusy,
    ServerUnavailable,
    SpeechError,
    VoiceNotFound,
)


def category(error: SpeechError) -> ErrorCategory:
    """The category of an error. INVALID_REQUEST is permanent, so use it only if the next turn would fail, too."""
    match error:
        case AccessDenied():
            known = error.code is grpc.StatusCode.PERMISSION_DENIED
            return ErrorCategory.AUTHORIZATION if known else ErrorCategory.AUTHENTICATION
        case VoiceNotFound():
            return ErrorCategory.INVALID_REQUEST
        case InvalidRequest():
            only_text = bool(error.fields) and all(path.endswith("text") for path in error.fields)
            return ErrorCategory.APPLICATION if only_text else ErrorCategory.INVALID_REQUEST
        case ServerBusy():
            return ErrorCategory.RATE_LIMIT
        case ServerUnavailable():
            return ErrorCategory.CONNECTIVITY
        case _:
            return ErrorCategory.SERVER
