"""Around every call: what no method should have to think of.

An interceptor, so that it also holds for what gRPC does before a method runs: bytes that are no message are answered
with a status instead of an exception's text. Errors become statuses here and nowhere else; nothing raw gets out.

To gRPC every method is one with streams in both directions. That looks the same from outside, and it lets a call be
refused before its request is read, and a request that does not come be given up.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

import grpc
from google.rpc import code_pb2
from grpc_status import rpc_status

from service import call_context
from service.api_keys import ANYONE, ApiKeys, Caller
from service.call_context import CallContext
from service.call_record import CallRecord
from service.errors import ConfigRequired, MalformedMessage, RequestError, Unauthenticated
from service.metrics import Metrics
from service.status import is_expected, to_status
from service.tracing import Tracer
from sonorant.tts.v1.speak_pb2 import SpeakResponse
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeResponse, SynthesizeStreamResponse

log = logging.getLogger(__name__)

MAX_REQUEST_ID_CHARS = 64
# When a client cancels the call, its requests end before the cancellation arrives: wait and see which it was.
END_OF_REQUESTS_S = 0.002
_PREFIX = "/sonorant.tts.v1."
_OPEN_SERVICES = {"health": ("/grpc.health.",), "reflection": ("/grpc.reflection.",)}


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    def __init__(
        self,
        keys: ApiKeys | None,
        open_services: Iterable[str],
        request_timeout_s: float,
        metrics: Metrics,
        tracer: Tracer | None,
    ) -> None:
        """`open_services`: those of "health" and "reflection" that need no key. Without keys nothing needs one."""
        self._keys = keys
        self._open_prefixes = tuple(prefix for name in open_services for prefix in _OPEN_SERVICES[name])
        self._request_timeout_s = request_timeout_s
        self._metrics = metrics
        self._tracer = tracer

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None or details.method.startswith(self._open_prefixes):
            return handler
        metadata = list(details.invocation_metadata or ())
        caller, refusal = ANYONE, None
        if self._keys is not None:
            try:
                caller = _identify(self._keys, metadata)
            except Unauthenticated as error:
                refusal = error
        if refusal is None and not details.method.startswith(_PREFIX):
            return handler
        wanted, traceparent = _value(metadata, "x-request-id"), _value(metadata, "traceparent")
        usable = 0 < len(wanted) <= MAX_REQUEST_ID_CHARS and wanted.isprintable()
        context = CallContext(wanted if usable else secrets.token_hex(8), caller=caller)
        method = details.method.removeprefix(_PREFIX)
        record = CallRecord(method, context, self._metrics, self._tracer, traceparent)
        call = _Call(method, handler, context, refusal, self._request_timeout_s, record)
        serializer = handler.response_serializer
        if _value(metadata, "x-audio-omit") == "1":
            serializer = _without_audio(serializer)
        return grpc.stream_stream_rpc_method_handler(call.serve, _tolerant(handler.request_deserializer), serializer)


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
            raise Unauthenticated("API_KEY_UNKNOWN", "the API key is not one of this server; it may have been replaced")
        return caller
    raise Unauthenticated(
        "API_KEY_MISSING", "an API key is needed: send metadata 'authorization: Bearer KEY' or 'x-api-key: KEY'"
    )


class _Malformed:
    """Stands for a message that could not be read."""

    def __init__(self, error: Exception) -> None:
        self.error = MalformedMessage(
            f"a request is not a valid message of this method ({error}); strings must be UTF-8, and the client's stubs "
            "must be made from this server's .proto files"
        )


def _tolerant(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def deserialize(data: bytes) -> Any:
        try:
            return deserializer(data)
        except Exception as error:
            return _Malformed(error)

    return deserialize


def _without_audio(serializer: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """All that a response says, without the bytes of its audio: for people who read it."""

    def serialize(response: Any) -> bytes:
        if isinstance(response, SynthesizeResponse):
            response.ClearField("audio")
        elif isinstance(response, SpeakResponse | SynthesizeStreamResponse) and response.HasField("audio"):
            response.audio.ClearField("data")
        return serializer(response)

    return serialize


class _Call:
    """One RPC."""

    def __init__(
        self,
        method: str,
        handler: Any,
        context: CallContext,
        refusal: RequestError | None,
        request_timeout_s: float,
        record: CallRecord,
    ) -> None:
        self._method = method
        self._handler = handler
        self._context = context
        self._refusal = refusal
        self._request_timeout_s = request_timeout_s
        self._record = record
        self._code = code_pb2.CANCELLED  # unless it ends otherwise
        self._errors: tuple[BaseException, ...] = ()  # what it failed with, and what gRPC made of that

    async def serve(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        call_context.enter(self._context)
        # Not in a `finally`: while a response is being written, this generator would be closed only when collected.
        call_context.when_over(self._over)
        try:
            if self._refusal is not None:
                raise self._refusal
            async with aclosing(self._responses(self._checked(requests), context)) as responses:
                async for response in responses:
                    self._record.response(response)
                    yield response
            context.set_trailing_metadata(self._record.trailers())
            self._code = code_pb2.OK
        except BaseException as error:
            await self._fail(error, context)
            raise

    async def _responses(self, requests: AsyncGenerator[Any, None], context: Any) -> AsyncGenerator[Any, None]:
        """Of the method, whichever kind it is."""
        handler = self._handler
        if handler.stream_stream:
            responses = handler.stream_stream(requests, context)
        elif handler.stream_unary:
            async with aclosing(requests):
                yield await handler.stream_unary(requests, context)
            return
        else:
            async with aclosing(requests):
                request = await anext(requests, None)
            if request is None:
                await asyncio.sleep(END_OF_REQUESTS_S)
                raise MalformedMessage("the call ended without a request; send one")
            if handler.unary_unary:
                yield await handler.unary_unary(request, context)
                return
            responses = handler.unary_stream(request, context)
        async with aclosing(responses):
            async for response in responses:
                yield response

    async def _checked(self, requests: Any) -> AsyncGenerator[Any, None]:
        """The requests, as long as they are messages. The first one must come soon: a call takes a place.

        To be closed by whoever does not read them to the end: until then gRPC's iterator is in a cycle with all that
        gRPC knows of the call, and since it is finalized, too, it takes two collections to be freed.
        """
        async with aclosing(aiter(requests)) as requests:
            try:
                async with asyncio.timeout(self._request_timeout_s):
                    request = await anext(requests, None)
            except TimeoutError:
                late = f"no message came within {self._request_timeout_s:g} s"
                if self._handler.stream_stream:
                    raise ConfigRequired(f"{late}; begin with config") from None
                raise MalformedMessage(f"{late}; send the request with the call") from None
            while request is not None:
                if isinstance(request, _Malformed):
                    raise request.error
                yield request
                request = await anext(requests, None)

    async def _fail(self, error: BaseException, context: Any) -> None:
        """End the RPC with the error's status; return if it is over anyway, for the error to be raised on."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                return
            # Nobody cancelled this call: let out, it would leave the client waiting for ever (grpc/grpc#29248).
        elif not isinstance(error, Exception):
            return
        if not is_expected(error):
            log.error("%s failed", self._method, exc_info=error)
        status = to_status(error, self._context.request_id)
        self._code = status.code
        try:
            await context.abort_with_status(rpc_status.to_status(status))
        except BaseException as raised:
            self._errors = (error, raised)
            raise

    def _over(self, _task: object) -> None:
        self._record.end(self._code)
        for error in self._errors:  # kept by gRPC and by us: with their frames, which know the call, they are cycles
            error.__traceback__ = None
