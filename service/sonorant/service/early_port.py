"""The port while a server starts. Every call is refused, in words that tell clients to wait, and health says no.

The owner opens it, as server processes have nothing to say before their workers are loaded. It closes once a server
process listens on the same port. A start takes up to a minute; clients that find no port at all give up before.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_status import rpc_status

from sonorant.service.errors import ServerStarting
from sonorant.service.listening.ports import OPTIONS, open_port
from sonorant.service.rpc.health import LIVENESS
from sonorant.service.status import to_status

MAX_CALLS = 1000
FLUSH_S = 0.5  # time for those who watch health to learn that this port closes
_HEALTH = health_pb2.HealthCheckResponse


class EarlyPort:
    def __init__(self, address: str, credentials: grpc.ServerCredentials | None) -> None:
        """Raises CannotListen."""
        self._is_closing = asyncio.Event()
        self._server: Any = grpc.aio.server(
            handlers=[_Handlers(self._is_closing)],
            options=(*OPTIONS, ("grpc.so_reuseport", 1), ("grpc.max_allowed_incoming_connections", MAX_CALLS)),
            maximum_concurrent_rpcs=MAX_CALLS,
        )
        open_port(self._server, address, credentials)

    async def start(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        self._is_closing.set()
        await self._server.stop(FLUSH_S)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, is_closing: asyncio.Event) -> None:
        self._is_closing = is_closing
        codec = {
            "request_deserializer": health_pb2.HealthCheckRequest.FromString,
            "response_serializer": _HEALTH.SerializeToString,
        }
        self._health = {
            "/grpc.health.v1.Health/Check": grpc.unary_unary_rpc_method_handler(self._check, **codec),
            "/grpc.health.v1.Health/Watch": grpc.unary_stream_rpc_method_handler(self._watch, **codec),
        }

    def service(self, details: Any) -> Any:
        return self._health.get(details.method) or grpc.stream_stream_rpc_method_handler(_refuse)

    async def _check(self, request: health_pb2.HealthCheckRequest, _: Any) -> health_pb2.HealthCheckResponse:
        return _HEALTH(status=_HEALTH.SERVING if request.service == LIVENESS else _HEALTH.NOT_SERVING)

    async def _watch(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        yield await self._check(request, context)
        await self._is_closing.wait()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the server has started: watch it again")


async def _refuse(_: object, context: Any) -> None:
    await context.abort_with_status(rpc_status.to_status(to_status(ServerStarting(), secrets.token_hex(8))))
