"""What callers are told of statuses that are not the server's own words, but a balancer's or gRPC's."""

import asyncio
import copy
import multiprocessing
import pickle
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2

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
from sonorant.client.errors import from_status
from tests.clients.scripted_server import scripted_server, status

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


@pytest.mark.parametrize("kind", [SpeechError, InvalidRequest, AccessDenied, ServerBusy, ServerUnavailable, TimedOut])
@pytest.mark.parametrize("through", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda each: each.__name__)
def test_errors_are_the_same_after_a_journey(kind: type[SpeechError], through: Any) -> None:
    said = {"reason": "WHY", "fields": {"a.b": "wrong"}, "retry_after_s": 0.5, "request_id": "req_1"}
    error = kind(grpc.StatusCode.ABORTED, "no \u2013 way", **said)
    error.add_note("in the second try")
    again = through(error)
    again = pickle.loads(again) if isinstance(again, bytes) else again
    assert type(again) is kind and str(again) == str(error)
    assert again.code is grpc.StatusCode.ABORTED and {name: getattr(again, name) for name in said} == said
    assert again.__notes__ == ["in the second try"]


def test_the_id_of_a_call_is_told() -> None:
    failed = status(code_pb2.INTERNAL, "internal error", "STREAM_FAILED")
    failed.details.add().Pack(error_details_pb2.RequestInfo(request_id="req_1"))
    error = from_status(failed)
    assert (error.reason, error.request_id) == ("STREAM_FAILED", "req_1")


def test_errors_cross_processes() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
        pytest.raises(ServerBusy) as told,
    ):
        pool.submit(_fail).result()
    assert told.value.retry_after_s == 2


def _fail() -> None:
    raise ServerBusy(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_after_s=2)


def test_a_client_may_be_made_before_the_event_loop_and_is_of_one_loop() -> None:
    made_before = SpeechClient("127.0.0.1:1")
    limited = made_before.limited(timeout_s=5)

    async def call(client: SpeechClient) -> None:
        with pytest.raises(ServerUnavailable, match="no answer from a Sonorant server"):
            await client.capabilities()
        with pytest.raises(ServerUnavailable):
            await client.voices()
        with pytest.raises(ServerUnavailable):
            await client.synthesize("a")

    async def both() -> None:
        await call(made_before)
        await call(limited)

    asyncio.run(both())
    for again in (made_before, limited):
        with pytest.raises(RuntimeError, match="used in another event loop; make one for each"):
            asyncio.run(again.capabilities())
