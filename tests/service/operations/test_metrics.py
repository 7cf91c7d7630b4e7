"""What a scraper sees of a real server, before and after calls of every kind."""

import asyncio
import socket
from pathlib import Path

import grpc
import pytest

from sonorant.engine import EngineState
from sonorant.hosting.addresses import CannotListen
from sonorant.service.operations import metrics_port as metrics_port_module
from sonorant.service.operations.latency import PARTS, parts
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    GetCapabilitiesRequest,
    SynthesizeRequest,
    SynthesizeStreamRequest,
)
from tests.service.fake_engine import FakeEngine
from tests.service.harness import (
    Served,
    Transcript,
    cancel,
    config,
    end,
    eventually,
    failure,
    read_all,
    read_until,
    say,
    served,
)
from tests.service.keys import ADA, BOB, bearer, table
from tests.service.scraping import SIDE_PORT, http, scrape


async def counted(server: Served, name: str) -> float:
    return (await scrape(server)).get(name, 0)


async def test_counts_move_with_every_kind_of_call() -> None:
    async with served(FakeEngine(), **SIDE_PORT) as server:
        assert (await scrape(server))["tts_first_audio_seconds_count"] == 0
        await server.stub.Synthesize(SynthesizeRequest(text="ab"))
        [_ async for _ in server.stub.SynthesizeStream(SynthesizeStreamRequest(text="cd"))]
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        for utterance_id in ("x", "y"):
            await call.write(say("ef", utterance_id))
            await call.write(end(utterance_id))
        await call.done_writing()
        await read_all(call)
        assert (await failure(server.stub.Synthesize(SynthesizeRequest(text=""))))[0] == (
            grpc.StatusCode.INVALID_ARGUMENT
        )
        # A call is over for its client a moment before it is for the server.
        failed = 'grpc_server_handled_total{code="INVALID_ARGUMENT",method="TextToSpeechService/Synthesize"}'
        await eventually(lambda: counted(server, failed), 1)
        seen = await scrape(server)
        assert seen['grpc_server_handled_total{code="OK",method="TextToSpeechService/Synthesize"}'] == 1
        assert seen['grpc_server_handled_total{code="OK",method="TextToSpeechService/SynthesizeStream"}'] == 1
        assert seen['grpc_server_handled_total{code="OK",method="TextToSpeechService/Speak"}'] == 1
        assert seen['tts_utterances_total{reason="COMPLETED"}'] == 4
        assert seen["tts_first_audio_seconds_count"] == seen["tts_queue_seconds_count"] == 4
        for part in PARTS:
            # The text of two came with the call, none with a recording.
            num_told = 2 if part == "opening" else 0 if part.startswith("recording") else 4
            assert seen[f'tts_budget_seconds_count{{part="{part}"}}'] == num_told
        assert seen["tts_audio_ms_total"] == 4 * 320
        assert seen["tts_active_utterances"] == 0
        assert (await scrape(server)) == seen, "looking changes nothing"


async def test_usage_is_counted_by_the_name_of_the_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(table("ada", ADA) + table("bob", BOB))
    async with served(FakeEngine(), api_keys=keys, **SIDE_PORT) as server:
        for text, key in (("ab", ADA), ("cde", ADA), ("f", BOB)):
            await server.stub.Synthesize(SynthesizeRequest(text=text), metadata=bearer(key))
        call = server.stub.Speak(metadata=bearer(BOB))
        for request in (speak_pb2.SpeakRequest(config=config()), say("gh"), end()):
            await call.write(request)
        await call.done_writing()
        await read_all(call)
        seen = await scrape(server)
        used = {key: seen[f'tts_key_chars_total{{key="{key}"}}'] for key in ("ada", "bob")}
        assert used == {"ada": 5, "bob": 3}
        audio_ms = {key: seen[f'tts_key_audio_ms_total{{key="{key}"}}'] for key in used}
        assert audio_ms == {key: num_chars * 160 for key, num_chars in used.items()}
        assert sum(audio_ms.values()) == seen["tts_audio_ms_total"]


async def test_what_is_going_on_is_seen_while_it_goes_on() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with served(engine, **SIDE_PORT) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("a" * 50, "x"))
        await read_until(call, transcript, "audio")
        seen = await scrape(server)
        assert seen["tts_active_utterances"] == 1
        assert (seen["tts_slots"], seen["tts_slots_used"]) == (32, 1)
        assert seen["tts_slots_used_ratio"] == 1 / 32
        assert seen["tts_queued_streams"] == 0
        load = await server.stub.GetCapabilities(GetCapabilitiesRequest())
        assert (load.active_sessions, load.active_streams, load.max_streams) == (1, 1, engine.max_streams)
        assert {'tts_ring_bytes{pair="0",ring="commands"}', "tts_engine_backlog"} <= set(seen)
        await call.write(cancel("x"))
        await read_until(call, transcript, "done")
        seen = await scrape(server)
        assert seen['tts_utterances_total{reason="CANCELLED"}'] == 1
        assert seen["tts_active_utterances"] == seen["tts_slots_used"] == 0
        stats = transcript.done["x"].stats
        assert seen["tts_cancelled_audio_ms_total"] == stats.audio_ms - stats.sent_ms
        await call.write(say("b" * 50, "y"))
        await read_until(call, transcript, "audio", "y")
        call.cancel()

        given_up = 'tts_utterances_total{reason="CALL_ENDED"}'
        await eventually(lambda: counted(server, given_up), 1)
        seen = await scrape(server)
        assert seen["tts_active_utterances"] == 0
        assert seen['grpc_server_handled_total{code="CANCELLED",method="TextToSpeechService/Speak"}'] == 1


async def test_who_waits_for_a_place_is_counted() -> None:
    async with served(FakeEngine(frame_s=0.02, max_streams=1), **SIDE_PORT) as server:
        taking = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="a" * 1000))
        await taking.read()
        waiting = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="b", scheduling={"max_wait_ms": 60_000}))
        assert (await waiting.read()).HasField("queued")
        assert (await scrape(server))["tts_waiting_utterances"] == 1
        taking.cancel()
        while (await waiting.read()) is not grpc.aio.EOF:
            pass
        assert (await scrape(server))["tts_waiting_utterances"] == 0


async def test_a_pause_within_an_utterance_is_an_underrun() -> None:
    async with served(FakeEngine(), **SIDE_PORT) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        for number, text in enumerate("ab", 1):
            await call.write(say(text))
            while len(transcript.pcm.get("u1", b"")) < number * 2 * 3840:
                await read_until(call, transcript, "audio")
            await asyncio.sleep(0.3)  # for 160 ms of audio
        await call.done_writing()
        await read_all(call, transcript)
        seen = await scrape(server)
        assert seen["tts_underruns_total"] == 1
        assert seen["tts_frame_gap_seconds_sum"] >= 0.3


async def test_utterances_that_wait_for_one_another_are_no_underruns() -> None:
    paced = config()
    paced.max_lead_ms = 400
    async with served(FakeEngine(), **SIDE_PORT) as server:
        call = server.stub.Speak()
        requests = [speak_pb2.SpeakRequest(config=paced), say("a" * 4), end(), say("b" * 4), end()]
        for request in requests:
            await call.write(request)
        await call.done_writing()
        assert len((await read_all(call)).done) == 2
        assert (await scrape(server))["tts_underruns_total"] == 0


async def test_trailers_tell_where_the_time_went() -> None:
    async with served(FakeEngine()) as server:
        call = server.stub.Synthesize(SynthesizeRequest(text="ab"))
        stats = (await call).stats
        trailers = dict(await call.trailing_metadata())
        assert trailers["x-audio-ms"] == str(stats.sent_ms) == "320"
        assert trailers["x-first-audio-ms"] == str(stats.first_audio_ms)
        assert {"x-queue-ms", "x-generation-ms"} <= set(trailers)
        budget = {name: float(value) for name, value in trailers.items() if name.startswith("x-budget-")}
        assert [*budget] == [f"x-budget-{part.replace('_', '-')}-ms" for part in PARTS]
        assert [*budget.values()] == [float(f"{ms:.1f}") for _, ms in parts(stats.first_audio_budget)]
        call = server.stub.GetCapabilities(GetCapabilitiesRequest())
        await call
        assert "x-audio-ms" not in dict(await call.trailing_metadata())


async def test_the_side_port_serves_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_port_module, "REQUEST_TIMEOUT_S", 0.2)
    async with served(FakeEngine(), **SIDE_PORT) as server:
        assert (await http(server, "GET / HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 404 ")
        assert (await http(server, "POST /metrics HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 405 ")
        assert await http(server, "GET /metrics HTTP/1.1\r\nX: " + "a" * 100_000 + "\r\n\r\n") == ("", "")
        assert await http(server, "GET /metrics HTT") == ("", ""), "whoever is slow is cut off"
        assert (await scrape(server))["tts_slots"] == 32


@pytest.mark.parametrize("path", ["/metrics", "/ready"])
async def test_a_head_says_what_a_get_would_and_has_no_body(path: str) -> None:
    async with served(FakeEngine(), **SIDE_PORT) as server:
        head, body = await http(server, f"HEAD {path} HTTP/1.1\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 ") and "Content-Length: 0" not in head and body == ""


async def test_a_port_that_is_taken_is_told_by_its_flag() -> None:
    async with served(FakeEngine(), **SIDE_PORT) as server:
        with pytest.raises(CannotListen, match="--metrics-listen"):
            async with served(FakeEngine(), metrics_listen=f"127.0.0.1:{server.metrics_port}"):
                pass


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("192.0.2.1:80", "cannot listen on 192.0.2.1:80 (Cannot assign requested address"),  # not of this host
        ("nowhere.invalid:80", "cannot listen on nowhere.invalid:80 ("),
        ("", "is another server running there? Choose an address with --listen"),
    ],
)
def test_why_a_port_cannot_be_had_is_told(address: str, says: str) -> None:
    """gRPC says of all of these that GRPC_VERBOSITY=debug would tell more."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = address or f"127.0.0.1:{taken.getsockname()[1]}"
        told = str(CannotListen(address, RuntimeError("set GRPC_VERBOSITY=debug"), "--listen"))
    assert says in told and "GRPC_VERBOSITY" not in told
    assert ("another server" in told) == ("already in use" in told)


async def test_liveness_stays_while_readiness_goes() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        assert await server.health("liveness") == await server.health("readiness") == 1
        engine.enter(EngineState.RESTARTING)
        await server.wait_for_health(2)
        assert (await server.health("liveness"), await server.health("readiness")) == (1, 2)
        engine.enter(EngineState.READY)
        await server.wait_for_health(1)
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("a"))
        await read_until(call, transcript, "audio")
        server.drain.set()
        await read_until(call, transcript, "go_away")
        assert (await server.health("liveness"), await server.health("readiness"), await server.health()) == (1, 2, 2)
        call.cancel()


async def test_readiness_for_balancers_comes_and_goes_while_metrics_stay() -> None:
    engine = FakeEngine(frame_s=0.005)
    engine.state = EngineState.STARTING
    async with served(engine, **SIDE_PORT) as server:

        async def ready() -> str:
            return (await http(server, "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n"))[0].split()[1]

        assert await ready() == "404"
        engine.enter(EngineState.READY)
        await eventually(ready, "200")
        engine.enter(EngineState.RESTARTING)
        await eventually(ready, "404")
        engine.enter(EngineState.READY)
        await eventually(ready, "200")
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("a", "x"))
        await read_until(call, transcript, "audio")
        assert await counted(server, "tts_sessions") == 1
        assert await counted(server, "tts_sessions_limit") == 1000
        server.drain.set()
        await eventually(ready, "404")
        assert await counted(server, "tts_sessions") == 1
        await call.done_writing()
        await read_all(call, transcript)
        assert await server.exit_code == 0


async def test_calls_are_taken_until_balancers_have_seen_that_it_drains() -> None:
    async with served(FakeEngine(), drain_delay_s=3600, **SIDE_PORT) as server:
        server.drain.set()
        await server.wait_for_health(2)
        assert (await http(server, "GET /ready HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 404 ")
        assert (await server.stub.Synthesize(SynthesizeRequest(text="ab"))).stats.sent_ms == 320
