"""What callers are told of statuses that are not the server's own words, but a balancer's or gRPC's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from sonorant.client import (
    AccessDenied,
    InvalidRequest,
    Retry,
    ServerBusy,
    ServerUnavailable,
    SpeechClient,
    SpeechError,
    TimedOut,
)
from tests.clients.scripted_server import scripted_server

CORE = "Internal error from Core"


class Front(grpc.GenericRpcHandler):
    """Ends every call with one status, without a reason."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._status = (code, details)
        self.num_calls = 0

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def end(_requests: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
            self.num_calls += 1
            await context.abort(*self._status)
            yield b""

        return grpc.stream_stream_rpc_method_handler(end)


@asynccontextmanager
async def through(front: Front) -> AsyncIterator[SpeechClient]:
    server = grpc.aio.server(handlers=(front,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with SpeechClient(f"127.0.0.1:{port}", retry=Retry(for_s=0.01)) as client:
            yield client
    finally:
        await server.stop(None)


async def all_of(stream: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in stream]


@pytest.mark.parametrize("code", ["INTERNAL", "CANCELLED", "UNKNOWN", "ABORTED", "DATA_LOSS"])
async def test_a_lost_call_is_a_loss_with_every_status_of_a_balancer(code: str) -> None:
    async with through(Front(grpc.StatusCode[code], CORE)) as client:
        for call in (
            client.create_voice(reference=b"RIFF", transcript="hello"),
            client.voices(),
            client.synthesize("hello"),
            client.speak().__aenter__(),
            all_of(client.stream("hello")),
            all_of(client.decode(b"codes")),
        ):
            with pytest.raises(ServerUnavailable, match=f"127.0.0.1.*{CORE}") as caught:
                await call
            assert caught.value.code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        ("UNIMPLEMENTED", "Method not found!", InvalidRequest),  # it is no Sonorant server
        ("UNAUTHENTICATED", "Received http2 header with status: 401", AccessDenied),
        ("PERMISSION_DENIED", "Received http2 header with status: 403", AccessDenied),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", TimedOut),
        ("RESOURCE_EXHAUSTED", "Bandwidth exhausted or memory limit exceeded", ServerBusy),
        ("RESOURCE_EXHAUSTED", "SERVER: Received message larger than max (9 vs. 8)", InvalidRequest),
        ("RESOURCE_EXHAUSTED", "CLIENT: Sent message larger than max (9 vs. 8)", InvalidRequest),
    ],
)
async def test_an_error_that_another_server_would_repeat_is_no_loss(
    code: str, details: str, kind: type[SpeechError]
) -> None:
    front = Front(grpc.StatusCode[code], details)
    async with through(front) as client:
        for call in (client.voices(), client.synthesize("hello")):
            front.num_calls = 0
            with pytest.raises(SpeechError) as caught:
                await call
            assert type(caught.value) is kind
            assert caught.value.code.name == ("INVALID_ARGUMENT" if "larger" in details else code)
            assert front.num_calls == 1, "it was asked again"


async def test_a_text_over_the_limit_of_messages_is_refused_at_once() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        with pytest.raises(InvalidRequest, match="larger than max"):
            await client.synthesize("x" * 4_200_000)
        speech.resumable = True
        async with client.speak() as session:
            await session.send_text("x" * 4_200_000)
            with pytest.raises(InvalidRequest, match="larger than max"):
                await all_of(session)
        assert speech.num_sessions == 1, "it was said again"
