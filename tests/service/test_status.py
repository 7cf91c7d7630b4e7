"""The table of errors: every error the service or the engine raises on purpose has a status of its own."""

import grpc
import pytest

from sonorant import engine
from sonorant.engine import api
from sonorant.service import errors
from sonorant.service.status import DOMAIN, is_expected, to_status
from tests.service.harness import details_of

CASES = [
    (errors.InvalidField("a.b", "wrong"), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", "BadRequest"),
    (errors.NotServed("a.b", "not yet"), grpc.StatusCode.UNIMPLEMENTED, "NOT_SERVED_YET", "BadRequest"),
    (errors.MethodNotServed("x"), grpc.StatusCode.UNIMPLEMENTED, "NOT_SERVED_YET", None),
    (errors.VoiceNotFound("eve"), grpc.StatusCode.NOT_FOUND, "VOICE_NOT_FOUND", "ResourceInfo"),
    (errors.VoiceUnusable("eve", "x", "PRESET"), grpc.StatusCode.FAILED_PRECONDITION, "PRESET", "PreconditionFailure"),
    (errors.VoiceExists("eve"), grpc.StatusCode.ALREADY_EXISTS, "VOICE_EXISTS", "ResourceInfo"),
    (errors.RequestIdReused("r"), grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED", None),
    (errors.VoiceQuotaReached("s", "x"), grpc.StatusCode.RESOURCE_EXHAUSTED, "VOICE_QUOTA_REACHED", "QuotaFailure"),
    (errors.VoiceDamaged("eve", "x"), grpc.StatusCode.DATA_LOSS, "VOICE_DAMAGED", "ResourceInfo"),
    (errors.VoiceStoreFailed("x"), grpc.StatusCode.UNAVAILABLE, "VOICE_STORE_FAILED", "RetryInfo"),
    (errors.DictionaryNotFound("names", 3), grpc.StatusCode.NOT_FOUND, "DICTIONARY_NOT_FOUND", "ResourceInfo"),
    (
        errors.DictionaryQuotaReached("x"),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "DICTIONARY_QUOTA_REACHED",
        "QuotaFailure",
    ),
    (errors.Unauthenticated("API_KEY_MISSING", "x"), grpc.StatusCode.UNAUTHENTICATED, "API_KEY_MISSING", None),
    (errors.VoiceNotAllowed("x"), grpc.StatusCode.PERMISSION_DENIED, "VOICE_NOT_ALLOWED", None),
    (errors.ConfigRequired("x"), grpc.StatusCode.FAILED_PRECONDITION, "CONFIG_REQUIRED", "PreconditionFailure"),
    (errors.MalformedMessage("x"), grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_MESSAGE", None),
    (errors.AudioTooLong(9), grpc.StatusCode.OUT_OF_RANGE, "AUDIO_TOO_LONG", None),
    (errors.LimitReached("s", "x"), grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED", "QuotaFailure"),
    (errors.MessageTooLarge(9, 8), grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE", None),
    (errors.ServiceUnknown("x"), grpc.StatusCode.NOT_FOUND, "SERVICE_UNKNOWN", None),
    (errors.TooSlow("x"), grpc.StatusCode.FAILED_PRECONDITION, "TOO_SLOW", None),
    (errors.SlowReader("x"), grpc.StatusCode.RESOURCE_EXHAUSTED, "SLOW_READER", None),
    (errors.CheckpointDiffers("x"), grpc.StatusCode.FAILED_PRECONDITION, "CHECKPOINT_DIFFERS", None),
    (errors.ServerStarting(), grpc.StatusCode.UNAVAILABLE, "ENGINE_STARTING", "RetryInfo"),
    (errors.Draining("x"), grpc.StatusCode.UNAVAILABLE, "DRAINING", "RetryInfo"),
    (engine.EngineOverloaded("x"), grpc.StatusCode.RESOURCE_EXHAUSTED, "ENGINE_OVERLOADED", "RetryInfo"),
    (engine.EngineUnavailable("x"), grpc.StatusCode.UNAVAILABLE, "ENGINE_UNAVAILABLE", "RetryInfo"),
    (engine.InvalidSynthesis("text", "x"), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", "BadRequest"),
    (engine.StreamFailed("x"), grpc.StatusCode.INTERNAL, "STREAM_FAILED", None),
    (engine.CodecDiffers("x"), grpc.StatusCode.FAILED_PRECONDITION, "CODEC_DIFFERS", None),
    (engine.EncodingFailed("x"), grpc.StatusCode.INTERNAL, "ENCODING_FAILED", None),
]


@pytest.mark.parametrize(("error", "code", "reason", "detail"), CASES, ids=lambda value: type(value).__name__)
def test_each_kind(error: Exception, code: grpc.StatusCode, reason: str, detail: str | None) -> None:
    assert is_expected(error)
    status = to_status(error, "r-1")
    details = details_of(status)
    assert (status.code, status.message) == (code.value[0], str(error))
    assert (details["ErrorInfo"].reason, details["ErrorInfo"].domain) == (reason, DOMAIN)
    assert details["RequestInfo"].request_id == "r-1"
    assert detail is None or detail in details


def test_the_table_knows_every_error_of_the_service() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RequestError)}
    assert kinds - {type(error) for error, *_ in CASES} == {
        errors.RequestError,
        errors.UtteranceFailed,  # it brings its status along
    }


def test_the_table_knows_every_error_of_the_engine_that_a_call_can_meet() -> None:
    kinds = {kind for kind in vars(api).values() if isinstance(kind, type) and issubclass(kind, engine.EngineError)}
    not_in_calls = {engine.EngineError, engine.CheckpointError}
    known = tuple({type(error) for error, *_ in CASES})
    assert {kind for kind in kinds if not issubclass(kind, known)} == not_in_calls


def test_anything_else_is_internal_and_tells_nothing() -> None:
    error = ValueError("a secret")
    assert not is_expected(error)
    assert to_status(error, "r-1").message == "internal error, request_id=r-1"
