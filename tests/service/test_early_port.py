"""While a server starts, callers are told so on its own port, and wait for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sonorant.client import AudioChunk, ConnectionLost, Resumed, Retry, SpeechClient, TimedOut, synthesis_config
from sonorant.hosting.addresses import reserved_port
from sonorant.service.early_port import EarlyPort
from sonorant.service.rpc.health import LIVENESS
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import Stub, failure, served

STATUS = health_pb2.HealthCheckResponse
SHORT = Retry(for_s=1.0)  # shorter than the start below
START_S = 1.6


@asynccontextmanager
async def starting(address: str) -> AsyncIterator[EarlyPort]:
    early = EarlyPort(address, None)
    await early.start()
    try:
        yield early
    finally:
        await early.close()


@pytest.mark.parametrize("method", ["Speak", "Synthesize", "SynthesizeStream"])
async def test_every_call_is_refused_and_told_when_to_try_again(method: str) -> None:
    with reserved_port("127.0.0.1:0", "--listen") as address:
        async with starting(address), grpc.aio.insecure_channel(address) as channel:
            call: Any = getattr(Stub(channel), method)
            code, message, details = await failure(call() if method == "Speak" else call(SynthesizeRequest(text="a")))
    assert code == grpc.StatusCode.UNAVAILABLE and "starting" in message
    assert details["ErrorInfo"].reason == "ENGINE_STARTING"
    assert details["RetryInfo"].retry_delay.ToMilliseconds() == 500


async def test_health_says_that_it_lives_and_does_not_serve_until_a_server_process_does() -> None:
    with reserved_port("127.0.0.1:0", "--listen") as address:
        async with starting(address) as early, grpc.aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for name, status in (
                ("", STATUS.NOT_SERVING),
                ("readiness", STATUS.NOT_SERVING),
                (LIVENESS, STATUS.SERVING),
            ):
                assert (await health.Check(health_pb2.HealthCheckRequest(service=name))).status == status
            async with SpeechClient(address) as client:
                waiting = asyncio.create_task(client.wait_until_serving(30))
                watching = health.Watch(health_pb2.HealthCheckRequest())
                assert (await watching.read()).status == STATUS.NOT_SERVING
                async with served(FakeEngine(), early=early, listen=address):
                    await waiting


async def test_a_session_outlives_a_start_that_takes_longer_than_its_patience() -> None:
    with reserved_port("127.0.0.1:0", "--listen") as address:
        async with SpeechClient(address, retry=SHORT) as client:
            first = served(FakeEngine(), listen=address)
            await first.__aenter__()
            session = client.speak(synthesis_config(seed=7), max_lead_ms=100, text="ab")
            async with session:
                heard, events = [], aiter(session)
                async for event in events:
                    if isinstance(event.payload, AudioChunk):
                        heard.append(event.payload.data)
                        break
                await first.__aexit__(None, None, None)
                async with starting(address) as early:
                    await asyncio.sleep(START_S)
                    async with served(FakeEngine(), early=early, listen=address):
                        await session.send_text("cd")
                        await session.finish()
                        rest = [event.payload async for event in events]
    heard += [payload.data for payload in rest if isinstance(payload, AudioChunk)]
    assert b"".join(heard) == spoken("abcd", seed=7)
    assert [type(payload) for payload in rest if isinstance(payload, ConnectionLost | Resumed)][-1] is Resumed


async def test_a_new_call_waits_for_the_start_unless_it_has_a_time_limit() -> None:
    with reserved_port("127.0.0.1:0", "--listen") as address:
        async with starting(address) as early, SpeechClient(address, retry=SHORT) as client, AsyncExitStack() as stack:
            clip = asyncio.create_task(client.synthesize("ab", synthesis_config(seed=7)))
            session = client.speak(synthesis_config(seed=7), text="ab", end=True)
            opening = asyncio.create_task(stack.enter_async_context(session))
            async with SpeechClient(address, timeout_s=0.3) as hasty:
                with pytest.raises(TimedOut):
                    await hasty.synthesize("ab")
            await asyncio.sleep(START_S)
            assert not clip.done() and not opening.done()
            async with served(FakeEngine(), early=early, listen=address):
                assert (await clip).audio == spoken("ab", seed=7)
                await opening
                await session.finish()
                heard = b"".join([e.payload.data async for e in session if isinstance(e.payload, AudioChunk)])
                assert heard == spoken("ab", seed=7)


async def test_a_client_with_two_addresses_goes_to_the_server_that_serves() -> None:
    with reserved_port("127.0.0.1:0", "--listen") as address:
        async with (
            starting(address),
            served(FakeEngine()) as other,
            SpeechClient(f"ipv4:{address},{other.address}", retry=SHORT) as client,
        ):
            assert (await client.synthesize("ab", synthesis_config(seed=7))).audio == spoken("ab", seed=7)
            async with client.speak(synthesis_config(seed=7), text="cd", end=True) as session:
                await session.finish()
                heard = b"".join([e.payload.data async for e in session if isinstance(e.payload, AudioChunk)])
            assert heard == spoken("cd", seed=7)
