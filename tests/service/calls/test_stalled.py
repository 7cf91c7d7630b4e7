"""Clients that take nothing: they lose their places, and nobody waits for them at the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from h2.events import DataReceived, ResponseReceived, TrailersReceived

from sonorant.service.calls import stalled
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest, SynthesizeStreamRequest
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Served, config, eventually, say, served
from tests.service.raw_http2 import CLOSED_WINDOW, RawConnection, raw_connection

SPEECH = "/sonorant.tts.v1.TextToSpeechService/"
STREAM = SynthesizeStreamRequest(text="Nobody takes any of this.")


async def active_sessions(server: Served) -> int:
    return (await server.stub.GetCapabilities(GetCapabilitiesRequest())).active_sessions


@asynccontextmanager
async def stopped_reading(server: Served, method: str) -> AsyncIterator[tuple[RawConnection, int]]:
    """A call whose responses nobody takes, and that has its place."""
    requests = [STREAM]
    if method == "Speak":
        requests = [speak_pb2.SpeakRequest(config=config()), say("Nobody takes any of this.")]
    async with raw_connection(server.address, CLOSED_WINDOW) as connection:
        stream = await connection.call(SPEECH + method, *requests, end=method != "Speak")
        await connection.read(ResponseReceived, stream=stream)
        assert await active_sessions(server) == 1
        yield connection, stream


@pytest.mark.parametrize("method", ["Speak", "SynthesizeStream"])
async def test_a_place_is_not_kept_for_who_takes_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalled, "LIMIT_S", 0.2)
    monkeypatch.setattr(stalled, "LOOK_S", 0.05)
    engine = FakeEngine()
    async with served(engine) as server, stopped_reading(server, method) as (connection, stream):
        await eventually(lambda: active_sessions(server), 0)
        await eventually(lambda: engine.num_streams, 0)
        # It reads after all: what was under way, and why there is no more.
        connection.http2.increment_flow_control_window(1_000_000, stream_id=stream)
        await connection.flush()
        await connection.read(DataReceived, stream=stream)
        trailers = dict((await connection.read(TrailersReceived, stream=stream)).headers)
        assert int(trailers["grpc-status"]) == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        assert "read faster" in trailers["grpc-message"]


@pytest.mark.parametrize("method", ["Speak", "SynthesizeStream"])
async def test_the_end_does_not_wait_for_who_takes_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalled, "DRAINING_LIMIT_S", 0.2)
    monkeypatch.setattr(stalled, "LOOK_S", 0.05)
    async with served(FakeEngine(), drain_grace_s=60.0) as server, stopped_reading(server, method):
        server.drain.set()
        assert await asyncio.wait_for(server.exit_code, 25) == 0


async def test_who_reads_slowly_but_reads_keeps_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait of the server for text or for its own pace is no stall of the client's."""
    monkeypatch.setattr(stalled, "LIMIT_S", 0.2)
    monkeypatch.setattr(stalled, "LOOK_S", 0.05)
    async with served(FakeEngine()) as server:
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        assert (await call.read()).HasField("session")
        await asyncio.sleep(0.6)
        await call.write(say("On."))
        assert (await call.read()).HasField("started")
        call.cancel()
