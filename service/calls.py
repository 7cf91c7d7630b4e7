"""Around every call of our two services: what no method should have to think of.

An interceptor, so that it also holds for what gRPC does before a method runs: bytes that are no message are answered
with a status instead of an exception's text. Errors become statuses here and nowhere else; nothing raw gets out.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

import grpc
from google.rpc import code_pb2
from grpc_status import rpc_status

from service.errors import MalformedMessage
from service.status import is_expected, to_status

log = logging.getLogger(__name__)

MAX_REQUEST_ID_CHARS = 64
_PREFIX = "/sonorant.tts.v1."
_request_id: ContextVar[str] = ContextVar("request_id", default="")


def request_id() -> str:
    """Of the call being served."""
    return _request_id.get()


class _Malformed:
    """Stands for a message that could not be read."""

    def __init__(self, error: Exception) -> None:
        self.error = MalformedMessage(
            f"a request is not a valid message of this method ({error}); strings must be UTF-8, and the client's stubs "
            "must be made from this server's .proto files"
        )


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    async def intercept_service(
        self,
        continuation: Callable[[Any], Awaitable[Any]],
        details: Any,
    ) -> Any:
        handler = await continuation(details)
        if handler is None or not details.method.startswith(_PREFIX):
            return handler
        wanted = next((value for key, value in details.invocation_metadata or () if key == "x-request-id"), "")
        call = _Call(details.method, wanted)
        deserializer = _tolerant(handler.request_deserializer)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(
                call.unary(handler.unary_unary), deserializer, handler.response_serializer
            )
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(
                call.unary_stream(handler.unary_stream), deserializer, handler.response_serializer
            )
        return grpc.stream_stream_rpc_method_handler(
            call.stream_stream(handler.stream_stream), deserializer, handler.response_serializer
        )


def _tolerant(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def deserialize(data: bytes) -> Any:
        try:
            return deserializer(data)
        except Exception as error:
            return _Malformed(error)

    return deserialize


def _checked(request: Any) -> Any:
    if isinstance(request, _Malformed):
        raise request.error
    return request


async def _checked_all(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _checked(request)


class _Call:
    """One RPC."""

    def __init__(self, method: str, wanted_request_id: str) -> None:
        self._method = method.removeprefix(_PREFIX)
        usable = 0 < len(wanted_request_id) <= MAX_REQUEST_ID_CHARS and wanted_request_id.isprintable()
        self._request_id = wanted_request_id if usable else secrets.token_hex(8)
        self._start_s = time.monotonic()

    def unary(self, method: Any) -> Any:
        async def serve(request: Any, context: Any) -> Any:
            self._begin()
            try:
                response = await method(_checked(request), context)
            except BaseException as error:
                await self._fail(error, context)
                raise
            self._log(code_pb2.OK)
            return response

        return serve

    def unary_stream(self, method: Any) -> Any:
        async def serve(request: Any, context: Any) -> AsyncIterator[Any]:
            self._begin()
            try:
                async with aclosing(method(_checked(request), context)) as responses:
                    async for response in responses:
                        yield response
            except BaseException as error:
                await self._fail(error, context)
                raise
            self._log(code_pb2.OK)

        return serve

    def stream_stream(self, method: Any) -> Any:
        async def serve(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            self._begin()
            try:
                async with aclosing(method(_checked_all(requests), context)) as responses:
                    async for response in responses:
                        yield response
            except BaseException as error:
                await self._fail(error, context)
                raise
            self._log(code_pb2.OK)

        return serve

    def _begin(self) -> None:
        _request_id.set(self._request_id)

    async def _fail(self, error: BaseException, context: Any) -> None:
        """End the RPC with the error's status; return if it is over anyway, for the error to be raised on."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self._log(code_pb2.CANCELLED)
                return
            # Nobody cancelled this call: let out, it would leave the client waiting for ever (grpc/grpc#29248).
        elif not isinstance(error, Exception):
            return
        if not is_expected(error):
            log.error("%s failed", self._method, exc_info=error, extra={"request_id": self._request_id})
        status = to_status(error, self._request_id)
        self._log(status.code)
        await context.abort_with_status(rpc_status.to_status(status))

    def _log(self, code: int) -> None:
        log.info(
            "call ended",
            extra={
                "method": self._method,
                "code": code_pb2.Code.Name(code),
                "duration_ms": round((time.monotonic() - self._start_s) * 1000),
                "request_id": self._request_id,
            },
        )
