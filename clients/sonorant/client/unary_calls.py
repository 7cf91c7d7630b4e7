"""Calls with one answer, for the methods of `SpeechClient`."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import Message

from sonorant.client.errors import from_rpc_error
from sonorant.client.transport.retries import Retry, call_with_retries, time_limit


class UnaryCalls:
    target: str
    _timeout_s: float | None
    _retry: Retry

    async def _asked(self, method: Any, request: Message) -> Any:
        """Return the one answer to a request that changes nothing, and so is made again as `Retry` says. Raises the
        errors of `sonorant.client.errors`."""
        async with time_limit(self._timeout_s, self.target):
            return await call_with_retries(lambda: method(request), self.target, self._retry, num_tries_when_down=1)

    async def _unary(self, method: Any, request: Message | AsyncIterator[Message]) -> Any:
        """Return the one answer to a request, or to a stream of requests. Raises the errors of
        `sonorant.client.errors`."""
        try:
            async with time_limit(self._timeout_s, self.target):
                return await method(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self.target) from None
