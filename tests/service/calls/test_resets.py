"""A client that connects anew, opens a call and cancels it, again and again, waits for its past; others do not."""

import asyncio
import logging
from contextlib import suppress

import grpc
import pytest

from sonorant.service.calls import resets
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from tests.measure.small_attacks import channel
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Stub, eventually, served

NUM_RESETS = 3


async def test_rapid_resets_are_slowed_down(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sonorant")
    monkeypatch.setattr(resets, "MOST", NUM_RESETS - 0.5)
    monkeypatch.setattr(resets, "EARLY_S", 60.0)
    monkeypatch.setattr(resets, "PER_S", 1e-9)

    def cancelled() -> int:
        return sum(getattr(record, "code", "") == "CANCELLED" for record in caplog.records)

    async with served(FakeEngine()) as server:
        await server.stub.GetCapabilities(GetCapabilitiesRequest())  # this connection is known from now on
        for num in range(NUM_RESETS):
            async with channel(server.address) as here:
                call = Stub(here).Speak()
                await call.write(speak_pb2.SpeakRequest(config={}))
                await call.read()
                call.cancel()
                await eventually(cancelled, num + 1)
        async with channel(server.address) as here:
            held = asyncio.ensure_future(Stub(here).GetCapabilities(GetCapabilitiesRequest()))
            await here.channel_ready()
            for _ in range(50):
                await server.stub.GetCapabilities(GetCapabilitiesRequest())
            assert not held.done()
            held.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await held
        assert cancelled() == NUM_RESETS  # nothing was made for the one that was held
        monkeypatch.setattr(resets, "PER_S", 1000.0)
        async with channel(server.address) as here:
            assert (await Stub(here).GetCapabilities(GetCapabilitiesRequest())).server_version
