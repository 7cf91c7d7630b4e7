"""Calls with one answer, for the methods of `SpeechClient`."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import Message

from sonorant.client.errors import from_rpc_error
from sonorant.client.transport.retries import time_limit


class UnaryCalls:
    target: str
    _timeout_s: float | None

    async def _unary(self, method: Any, request: Message | AsyncIterator[Message]) -> Any:
        """Return the one answer to a request, or to a stream of requests. Raises the errors of
        `sonorant.client.errors`."""
        try:
            async with time_limit(self._timeout_s, self.target):
                return await method(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self.target) from None
