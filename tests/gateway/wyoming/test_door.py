"""Home Assistant's door, judged by the wyoming package."""

import asyncio
import json
import logging
import sys
from contextlib import suppress
from typing import Any

import pytest
from wyoming.audio import AudioChunk, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from sonorant.client import Access
from sonorant.gateway.metrics import GatewayMetrics
from sonorant.gateway.upstream.catalog import Catalogs
from sonorant.gateway.upstream.servers import Servers
from sonorant.gateway.web.connections import OpenConnections
from sonorant.gateway.wyoming.door import WyomingDoor
from sonorant.logs import json_handler
from tests.gateway.harness import gateway
from tests.gateway.wyoming._support import LISTEN, audio, client, until
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually
from tests.service.keys import ADA, table
from tests.written_texts import TOKENS

SAID = "word by word"


def tones(engine: FakeEngine, said: str) -> bytes:
    return spoken(said, engine.opened[-1].sampling.seed)


async def test_voices_are_described() -> None:
    async with gateway(FakeEngine(), **LISTEN) as door, client(door) as connection:
        await connection.write_event(Describe().event())
        (event,) = await until(connection, Info)
    (program,) = Info.from_event(event).tts
    assert program.supports_synthesize_streaming and program.installed
    assert [voice.name for voice in program.voices] == ["ada", "bob"]
    assert program.voices[0].languages == ["en", "de"]


async def test_a_whole_text_is_spoken() -> None:
    engine = FakeEngine()
    async with gateway(engine, **LISTEN) as door, client(door) as connection:
        for said in (SAID, "again"):  # on one connection
            await connection.write_event(Synthesize(said, SynthesizeVoice(name="bob")).event())
            assert audio(await until(connection, AudioStop)) == tones(engine, said)
            assert engine.opened[-1].speaker == "bob"


async def test_a_text_in_pieces_sounds_before_it_is_complete_and_is_not_said_twice() -> None:
    engine = FakeEngine()
    async with gateway(engine, **LISTEN) as door, client(door) as connection:
        await connection.write_event(SynthesizeStart(SynthesizeVoice(language="english")).event())
        await connection.write_event(SynthesizeChunk("word by ").event())
        first = await until(connection, AudioChunk)
        await connection.write_event(SynthesizeChunk("word").event())
        await connection.write_event(Synthesize(SAID).event())  # for servers that do not stream
        await connection.write_event(SynthesizeStop().event())
        events = first + await until(connection, SynthesizeStopped)
    assert audio(events) == tones(engine, SAID) and len(engine.opened) == 1
    assert AudioStop.is_type(events[-2].type)


async def test_numbers_in_pieces_are_those_of_the_whole_text() -> None:
    engine = FakeEngine()
    async with gateway(engine, **LISTEN) as door, client(door) as connection:
        for pieces in TOKENS:
            await connection.write_event(SynthesizeStart().event())
            for piece in pieces:
                await connection.write_event(SynthesizeChunk(piece).event())
            await connection.write_event(SynthesizeStop().event())
            assert audio(await until(connection, SynthesizeStopped)) == tones(engine, "".join(pieces))


async def test_what_is_wrong_is_told_and_the_connection_lives_on() -> None:
    engine = FakeEngine()
    async with gateway(engine, **LISTEN) as door, client(door) as connection:
        await connection.write_event(Synthesize(SAID, SynthesizeVoice(name="nobody")).event())
        events = await until(connection, Error)
        assert Error.from_event(events[-1]).code == "voice_not_found"
        await connection.write_event(Event("synthesize", {"text": 7}))
        await until(connection, Error)
        await connection.write_event(Synthesize("...").event())
        assert len(audio(await until(connection, AudioStop))) >= 960
        await connection.write_event(Synthesize(SAID).event())
        assert audio(await until(connection, AudioStop)) == tones(engine, SAID)


async def test_texts_are_logged_like_requests_of_other_doors(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with gateway(FakeEngine(), **LISTEN) as door, client(door) as connection:
        await connection.write_event(Synthesize(SAID).event())
        await until(connection, AudioStop)
        await eventually(lambda: len(ended(caplog)), 1)
        async with door.http.post("/v1/audio/speech", json={"input": SAID, "response_format": "pcm"}) as response:
            await response.read()
        await eventually(lambda: len(ended(caplog)), 2)
    of_wyoming, of_http = ended(caplog)
    assert (of_wyoming["door"], of_wyoming["status"]) == ("wyoming", 200)
    assert of_http.keys() - of_wyoming.keys() == {"http_method", "path"}
    assert of_wyoming["request_id"] and SAID not in str(of_wyoming)


def ended(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What the log says of requests that are over, as JSON has it."""
    lines = [json.loads(json_handler(sys.stderr).format(record)) for record in caplog.records]
    return [line for line in lines if line["message"] == "request ended"]


async def test_one_who_hangs_up_frees_the_stream() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with gateway(engine, **LISTEN) as door:
        async with client(door) as connection:
            await connection.write_event(Synthesize(SAID * 20).event())
            await until(connection, AudioChunk)
            assert len(engine.live) == 1
        await eventually(lambda: len(engine.live), 0, 2.0)


async def test_the_key_of_the_gateway_is_used(tmp_path: Any) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(table("ada", ADA))
    behind = {"server": {"api_keys": keys}}
    async with gateway(FakeEngine(), **behind, wyoming_key=ADA, **LISTEN) as door, client(door) as connection:
        await connection.write_event(Synthesize(SAID).event())
        assert audio(await until(connection, AudioStop))
    async with gateway(FakeEngine(), **behind, **LISTEN) as door, client(door) as connection:
        await connection.write_event(Synthesize(SAID).event())
        assert Error.from_event((await until(connection, Error))[-1]).code == "invalid_api_key"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"[" * 200_000 + b"\n",
        b'{"type": "synthesize", "data_length": 9999999999}\n',
        b'{"type": "synthesize", "payload_length": -1}\n',
        b"\xff\xfe\n",
        b"x" * 1_000_000,
        b'{"type": "synthesize", "data": [1]}\n',
        b'{"type": "ping", "data": "x"}\n',
        b'{"type": "ping", "data": {"text": "\\ud800"}}\n',
        b'{"type": "synthesize", "data": {"text": "\\ud800"}}\n',
        b'{"type": "synthesize", "data": {"text": "a", "voice": {"language": "\\udfff"}}}\n',
        b'{"type": "synthesize", "data_length": 240001}\n[' + b"1," * 120_000 + b"]",
    ],
)
async def test_what_is_no_event_ends_the_connection_and_hurts_nobody(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    engine = FakeEngine()
    async with gateway(engine, **LISTEN) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.wyoming_port)
        writer.write(sent)
        try:
            async with asyncio.timeout(60):
                await reader.read()
        except ConnectionError:
            pass
        writer.close()
        async with client(door) as connection:
            await connection.write_event(Synthesize(SAID).event())
            assert audio(await until(connection, AudioStop)) == tones(engine, SAID)
    assert not [record for record in caplog.records if record.exc_info], "a stranger's mistake is no error of ours"


async def test_a_text_that_is_begun_ends_the_one_before_it() -> None:
    engine = FakeEngine()
    async with gateway(engine, **LISTEN) as door, client(door) as connection:
        for _ in range(2):
            await connection.write_event(SynthesizeStart(SynthesizeVoice(name="ada")).event())
            await connection.write_event(SynthesizeChunk(SAID).event())
        await connection.write_event(SynthesizeStop().event())
        for number in range(2):
            events = await until(connection, SynthesizeStopped)
            assert audio(events) == spoken(SAID, engine.opened[number].sampling.seed)


async def test_who_has_gone_before_the_answer_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """With uvloop, a write to a closed connection is a RuntimeError."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    nowhere = Servers((), Access.from_environment())
    wyoming = WyomingDoor(nowhere, Catalogs(nowhere), GatewayMetrics(), "", OpenConnections(1))

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = asyncio.StreamReader()
        asked.feed_data(b'{"type": "ping"}\n')
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()
        await wyoming.serve(asked, writer)
        done.set_result(None)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await asyncio.wait_for(done, 60)
        writer.close()
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_drain_lets_the_text_end() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with gateway(engine, **LISTEN) as door, client(door) as connection, client(door) as idle:
        await idle.write_event(Describe().event())
        await until(idle, Info)
        await connection.write_event(Synthesize(SAID).event())
        first = await until(connection, AudioChunk)
        door.drain.set()
        assert await idle.read_event() is None
        assert audio(first + await until(connection, AudioStop)) == tones(engine, SAID)
        assert await connection.read_event() is None


async def test_a_finished_sentence_is_spoken_to_its_end_without_more_text() -> None:
    engine = FakeEngine()
    async with gateway(engine, **LISTEN) as door, client(door) as connection:
        await connection.write_event(SynthesizeStart(voice=SynthesizeVoice(name="ada")).event())
        await connection.write_event(SynthesizeChunk(text="Let me look that up. ").event())
        said = b""
        async with asyncio.timeout(60):
            while not said or said != tones(engine, "Let me look that up. "):
                event = await connection.read_event()
                assert event is not None
                said += AudioChunk.from_event(event).audio if AudioChunk.is_type(event.type) else b""
        await connection.write_event(SynthesizeStop().event())
        await until(connection, SynthesizeStopped)
