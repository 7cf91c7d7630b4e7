"""The interceptor around every call: identity, request ids and records, so that no method has to deal with them.

As an interceptor, it also covers what gRPC does before a method runs: bytes that are not a valid message get a proper
status instead of an exception's text.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

from sonorant.service.access.api_keys import ANYONE, ApiKeys, Caller, unknown_key
from sonorant.service.admission.usage import Usage
from sonorant.service.calls.call import Call, CallParts
from sonorant.service.calls.context import CallContext
from sonorant.service.calls.record import CallRecord
from sonorant.service.calls.requests import tolerant
from sonorant.service.errors import Unauthenticated
from sonorant.service.operations.metrics import Metrics
from sonorant.service.operations.tracing import Tracer
from sonorant.tts.v1.speak_pb2 import SpeakResponse
from sonorant.tts.v1.text_to_speech_service_pb2 import DecodeResponse, SynthesizeResponse, SynthesizeStreamResponse

MAX_REQUEST_ID_CHARS = 64
_PREFIX = "/sonorant.tts.v1."
_RIVA_PREFIX = "/nvidia.riva.tts."
_RIVA_CONFIG = f"{_RIVA_PREFIX}RivaSpeechSynthesis/GetRivaSynthesisConfig"  # Riva's clients call it without a key
_WITH_CHUNKS = (SpeakResponse, SynthesizeStreamResponse, DecodeResponse)
_OPEN_SERVICES = {"health": ("/grpc.health.",), "reflection": ("/grpc.reflection.",)}


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    def __init__(
        self,
        keys: ApiKeys | None,
        open_services: Iterable[str],
        shared: CallParts,
        metrics: Metrics,
        usage: Usage,
        tracer: Tracer | None,
    ) -> None:
        """`keys`: None to need no keys at all. `open_services`: which of "health" and "reflection" need no key."""
        self._keys = keys
        prefixes = (prefix for name in open_services for prefix in _OPEN_SERVICES[name])
        self._open_prefixes = (*prefixes, _RIVA_CONFIG)
        self._shared = shared
        self._metrics = metrics
        self._usage = usage
        self._tracer = tracer

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return handler
        metadata = list(details.invocation_metadata or ())
        caller, refusal = ANYONE, None
        if self._keys is not None and not details.method.startswith(self._open_prefixes):
            try:
                caller = _identify(self._keys, metadata)
            except Unauthenticated as error:
                refusal = error
        wanted, traceparent = _value(metadata, "x-request-id"), _value(metadata, "traceparent")
        usable = 0 < len(wanted) <= MAX_REQUEST_ID_CHARS and wanted.isprintable()
        context = CallContext(
            wanted if usable else secrets.token_hex(8), caller=caller, forwarded_for=_value(metadata, "x-forwarded-for")
        )
        method, record = details.method.removeprefix(_PREFIX).removeprefix(_RIVA_PREFIX), None
        if refusal is not None or details.method.startswith((_PREFIX, _RIVA_PREFIX)):
            record = CallRecord(method, context, self._metrics, self._usage, self._tracer, traceparent)
        call = Call(method, handler, context, refusal, self._shared, record)
        serializer = handler.response_serializer
        if _value(metadata, "x-audio-omit") == "1":
            serializer = _without_audio(serializer)
        return grpc.stream_stream_rpc_method_handler(call.serve, tolerant(handler.request_deserializer), serializer)


def _value(metadata: Iterable[tuple[str, str]], name: str) -> str:
    return next((value for key, value in metadata if key == name), "")


def _identify(keys: ApiKeys, metadata: Iterable[tuple[str, str | bytes]]) -> Caller:
    for name, value in metadata:
        if name == "authorization":
            scheme, _, key = str(value).partition(" ")
            if scheme.lower() != "bearer":
                continue
        elif name == "x-api-key":
            key = str(value)
        else:
            continue
        caller = keys.find(key.strip())
        if caller is None:
            raise unknown_key()
        return caller
    raise Unauthenticated(
        "API_KEY_MISSING", "an API key is needed: send metadata 'authorization: Bearer KEY' or 'x-api-key: KEY'"
    )


def _without_audio(serializer: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return a serializer that leaves out the bytes of audio, for people who read the responses."""

    def serialize(response: Any) -> bytes:
        if isinstance(response, SynthesizeResponse):
            response.ClearField("audio")
        elif isinstance(response, _WITH_CHUNKS) and response.HasField("audio"):
            response.audio.ClearField("data")
        return serializer(response)

    return serialize
