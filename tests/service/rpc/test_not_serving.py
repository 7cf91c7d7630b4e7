"""Before the engine has served, no call is taken: a client that is told so goes on trying, here or elsewhere."""

import asyncio
import gc
from typing import Any

import grpc
import pytest

from sonorant.engine import EngineState
from sonorant.service import server as service
from sonorant.tts.v1 import speak_pb2, synthesis_pb2, text_to_speech_service_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import Transcript, config, end, failure, read_all, say, served, speak

CALLS = {
    "Speak": lambda stub: stub.Speak(),
    "Synthesize": lambda stub: stub.Synthesize(text_to_speech_service_pb2.SynthesizeRequest(text="a")),
    "SynthesizeStream": lambda stub: stub.SynthesizeStream(
        text_to_speech_service_pb2.SynthesizeStreamRequest(text="a")
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_call_is_refused_as_unavailable_and_the_client_learns_when_to_try_again(call: Any) -> None:
    engine = FakeEngine()
    engine.state = EngineState.STARTING
    async with served(engine) as server:
        code, message, details = await failure(call(server.stub))
        assert code == grpc.StatusCode.UNAVAILABLE and "starting" in message
        assert details["ErrorInfo"].reason == "ENGINE_UNAVAILABLE" and details["RetryInfo"].retry_delay.seconds
        engine.enter(EngineState.READY)
        transcript = await speak(server.stub, [config(), say("a")])
        assert transcript.pcm["u1"]


@pytest.mark.parametrize("name", ["Speak", "SynthesizeStream"])
async def test_a_call_in_the_last_moment_of_a_server_is_refused_as_unavailable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.TaskGroup() as ended:
        pass
    parts_of = service.parts_of
    monkeypatch.setattr(service, "parts_of", lambda *parts: parts_of(*parts[:-1], ended))
    async with served(FakeEngine()) as server:
        code, message, details = await failure(CALLS[name](server.stub))
        assert code == grpc.StatusCode.UNAVAILABLE and "stops" in message
        assert details["ErrorInfo"].reason == "DRAINING"
    gc.collect()  # a coroutine that nobody awaits would complain now


async def test_an_utterance_that_another_server_began_waits_for_workers_that_are_being_replaced() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        await speak(server.stub, [config(), say("a")])
        engine.enter(EngineState.RESTARTING)
        replay = synthesis_pb2.SynthesisConfig(sampling={"seed": 7})
        resume = speak_pb2.Resume(replay=replay, checkpoint=engine.info.fingerprint)
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(speak_pb2.SpeakRequest(utterance_id="u9", resume=resume))
        for request in (say("ab", "u9"), end("u9")):
            await call.write(request)
        await call.done_writing()
        transcript = await read_all(call, Transcript())
        assert transcript.done["u9"].reason == synthesis_pb2.FINISH_REASON_COMPLETED
        assert transcript.pcm["u9"] == spoken("ab", 7)
