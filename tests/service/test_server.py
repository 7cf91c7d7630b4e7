"""Health, reflection, drain and what the server process must not load."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from sonorant.engine import EngineState
from sonorant.service.listening import accepting
from sonorant.service.rpc.services import REFLECTION_V1, SERVICES
from sonorant.service.server import serve
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import (
    Transcript,
    config,
    end,
    eventually,
    failure,
    read_all,
    read_until,
    say,
    served,
    server_config,
)

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_serving_while_the_engine_is_ready() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        for name in ("", *SERVICES):
            assert await server.health(name) == SERVING
        engine.enter(EngineState.RESTARTING)
        await server.wait_for_health(NOT_SERVING)
        engine.enter(EngineState.READY)
        await server.wait_for_health(SERVING)


async def test_an_engine_that_gave_up_ends_the_server() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        engine.enter(EngineState.FAILED)
        assert await asyncio.wait_for(server.exit_code, 25) == 1


async def test_reflection_under_both_names() -> None:
    async with served(FakeEngine()) as server:
        for name in ("grpc.reflection.v1alpha.ServerReflection", REFLECTION_V1):
            call = server.channel.stream_stream(
                f"/{name}/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )()
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            listed = [service.name for service in (await call.read()).list_services_response.service]
            assert {*SERVICES, "grpc.health.v1.Health"} <= set(listed)
            for symbol in (*listed, "google.rpc.ErrorInfo"):
                await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol))
                assert (await call.read()).file_descriptor_response.file_descriptor_proto, symbol
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF


async def test_compressed_requests_are_refused_whatever_they_would_become() -> None:
    """15 KB that become 15 MB cost everybody 0.1 s, and their sender nothing."""
    request = SynthesizeRequest(text="a" * 7_000_000)
    async with served(FakeEngine()) as server:
        code, message, _ = await failure(server.stub.Synthesize(request, compression=grpc.Compression.Gzip))
        assert code == grpc.StatusCode.UNIMPLEMENTED
        assert "gzip" in message
        code, _, details = await failure(server.stub.Synthesize(request))
        assert details["ErrorInfo"].reason == "TEXT_TOO_LONG"


async def test_a_server_ends_that_is_told_to_before_its_engine_has_spoken() -> None:
    class Silent(FakeEngine):
        async def tried(self) -> None:
            await asyncio.Event().wait()

    drain = asyncio.Event()
    running = asyncio.create_task(serve(server_config(), Silent().started, drain))
    await asyncio.sleep(0)
    drain.set()
    assert await asyncio.wait_for(running, 30) == 0


async def test_drain_finishes_what_is_open_and_refuses_what_is_new() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with served(engine) as server:
        idle, busy, transcript = server.stub.Speak(), server.stub.Speak(), Transcript()
        for call in (idle, busy):
            await call.write(speak_pb2.SpeakRequest(config=config(sampling={"seed": 7})))
        await busy.write(say("a" * 20))
        await read_until(busy, transcript, "audio")
        server.drain.set()
        await read_until(busy, transcript, "go_away")
        assert transcript.responses[-1].go_away.drain_ms == 30_000
        assert await server.health() == NOT_SERVING
        code, _, details = await failure(server.stub.Synthesize(SynthesizeRequest(text="a")))
        assert code == grpc.StatusCode.UNAVAILABLE
        assert details["ErrorInfo"].reason == "DRAINING"
        await busy.write(say("new", "x"))
        await busy.write(say("bb", "u1"))
        await busy.write(end("u1"))
        await read_all(busy, transcript)
        assert transcript.pcm == {"u1": spoken("a" * 20 + "bb", 7)}
        assert transcript.done["x"].reason == synthesis_pb2.FINISH_REASON_FAILED
        assert transcript.done["x"].error.code == grpc.StatusCode.UNAVAILABLE.value[0]
        assert [kind for _, kind in (await read_all(idle)).kinds] == ["session", "go_away"]
        assert await asyncio.wait_for(server.exit_code, 25) == 0


async def test_a_session_that_has_only_begun_learns_of_the_drain() -> None:
    async with served(FakeEngine()) as server:
        call = server.stub.Speak()
        await call.initial_metadata()
        server.drain.set()
        await eventually(server.health, NOT_SERVING)
        await call.write(speak_pb2.SpeakRequest(config=config()))
        assert [kind for _, kind in (await read_all(call)).kinds] == ["session", "go_away"]
        assert await asyncio.wait_for(server.exit_code, 25) == 0


async def test_what_does_not_end_in_time_is_cut_off() -> None:
    engine = FakeEngine()
    async with served(engine, drain_grace_s=0.2) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("never ended"))
        await read_until(call, transcript, "audio")
        server.drain.set()
        assert await asyncio.wait_for(server.exit_code, 25) == 0
        assert (await failure(call))[0] == grpc.StatusCode.UNAVAILABLE
        assert engine.num_streams == 0


async def test_a_server_that_no_longer_listens_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ended gRPC's side of it; it would look alive, and be reached by nobody."""
    made: list[accepting.AcceptingServer] = []
    start = accepting.AcceptingServer.start

    async def start_and_tell(server: accepting.AcceptingServer) -> None:
        made.append(server)
        await start(server)

    monkeypatch.setattr(accepting.AcceptingServer, "start", start_and_tell)
    async with served(FakeEngine()) as server:
        await made[0].stop(None)
        assert await asyncio.wait_for(server.exit_code, 25) == 1
