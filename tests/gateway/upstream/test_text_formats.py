"""How a text is written, and when it is spoken, at every door: by the request, or by the door's own default."""

from pathlib import Path
from typing import Any

import pytest
from wyoming.audio import AudioChunk, AudioStop
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart

from sonorant.service.access.api_keys import ApiKeys, ApiKeysError
from tests.gateway.cartesia_client import Heard, end, text
from tests.gateway.harness import Door, gateway
from tests.gateway.openai._support import PCM, connect, say, until
from tests.gateway.wyoming._support import LISTEN, audio, client
from tests.gateway.wyoming._support import until as until_event
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.keys import ADA, table

WRITTEN = "# Hi\n**All** [here](https://a.b): `x`, https://c.d"
SAID = "Hi.\nAll here: x, https://c.d"
SENTENCES = "Lee is in. It is late"
SHORT = "Hi.\nAll here: x, "
MARKDOWN = {"text_format": "markdown"}
ALL_DOORS = {"text_format": "markdown", "cartesia_text_format": "markdown", "wyoming_text_format": "markdown"}


async def cartesia(door: Door, engine: FakeEngine, **fields: Any) -> tuple[bytes, int]:
    async with door.http.ws_connect("/tts/websocket") as socket:
        heard = Heard(socket)
        for char in WRITTEN:
            await socket.send_json({**text("a", char), **fields})
        await socket.send_json({**end("a"), **fields})
        await heard.until_done("a")
    return heard.audio["a"], engine.opened[-1].sampling.seed


async def test_requests_say_how_their_text_is_written() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door:
        assert (await door.speak(WRITTEN))[1] == spoken(WRITTEN, 1), "plain"
        assert (await door.speak(WRITTEN, **MARKDOWN))[1] == spoken(SAID, 1)
        assert (await door.speak(WRITTEN, **MARKDOWN, leave_out=["link"]))[1] == spoken(SHORT, 1)
        paused = spoken("Hi ", 1) + bytes(4800) + spoken(" so", 1)
        assert (await door.speak("Hi [pause 100ms] so", directions=True))[1] == paused
        assert (await door.speak('a<break time="100ms"/>b', text_format="ssml"))[1] == (
            spoken("a ", 1) + bytes(4800) + spoken("b", 1)
        )
        async with connect(door) as socket:
            await socket.send_json({**PCM, **MARKDOWN})
            await say(socket, *WRITTEN)
            assert (await until(socket, "session.done"))[1] == spoken(SAID, 1)
        heard, seed = await cartesia(door, engine, **MARKDOWN)
        assert heard == spoken(SAID, seed)
        for fields in ({"text_format": "html"}, {"leave_out": ["code"]}, {**MARKDOWN, "leave_out": ["b"]}):
            assert (await door.refusal(WRITTEN, **fields))[0] == 400


async def test_a_door_has_a_format_of_its_own() -> None:
    engine = FakeEngine()
    async with gateway(engine, **LISTEN, **ALL_DOORS) as door:
        assert (await door.speak(WRITTEN))[1] == spoken(SAID, 1)
        assert (await door.speak(WRITTEN, text_format="plain"))[1] == spoken(WRITTEN, 1)
        heard, seed = await cartesia(door, engine)
        assert heard == spoken(SAID, seed)
        async with client(door) as connection:
            await connection.write_event(Synthesize(WRITTEN).event())
            events = await until_event(connection, AudioStop)
        assert audio(events) == spoken(SAID, engine.opened[-1].sampling.seed)


@pytest.mark.parametrize("policy", [{"commit": "manual"}, {"commit": "sentence"}, {"max_buffer_delay_ms": 50}])
async def test_the_websocket_takes_a_text_policy(policy: dict[str, Any]) -> None:
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        await socket.send_json({**PCM, **policy})
        await say(socket, SENTENCES, done=False)
        if "max_buffer_delay_ms" in policy:
            heard = b""
            while len(heard) < len(spoken(SENTENCES)):
                heard += await until_audio(socket)
            assert heard == spoken(SENTENCES, 1), "to its end, although none was told"
        await say(socket)
        _, rest = await until(socket, "session.done")
    expected = {"manual": spoken(SENTENCES, 1), "sentence": spoken("Lee is in. ", 1) + spoken("It is late", 1)}
    assert rest == expected.get(policy.get("commit", ""), b"")


async def test_the_websocket_begins_when_there_is_enough_text() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json({**PCM, "first_chunk_min_chars": len(SENTENCES)})
        await say(socket, *SENTENCES)
        messages, heard = await until(socket, "session.done")
    assert messages[0]["sentence_text"] == SENTENCES and heard == spoken(SENTENCES, 1)


async def test_a_key_has_a_delay_of_its_own_at_every_door(tmp_path: Path) -> None:
    """The last word, which by default waits for what follows it, is spoken although nothing does."""
    half, keys = "Half a sen", tmp_path / "keys.toml"
    keys.write_text(table("ada", ADA, "max_buffer_delay_ms = 50"))
    engine, server = FakeEngine(), {"api_keys": keys}
    async with gateway(engine, server=server, headers={"X-API-Key": ADA}, wyoming_key=ADA, **LISTEN) as door:
        async with connect(door) as socket:
            await socket.send_json(PCM)
            await say(socket, half, done=False)
            said = b""
            while len(said) < len(spoken(half)):
                said += await until_audio(socket)
            assert said == spoken(half, 1)
        async with door.http.ws_connect("/tts/websocket") as socket:
            heard = Heard(socket)
            await socket.send_json(text("a", half))
            while len(heard.audio.get("a", b"")) < len(spoken(half)):
                await heard.next()
            assert heard.audio["a"] == spoken(half, engine.opened[-1].sampling.seed)
        async with client(door) as connection:
            await connection.write_event(SynthesizeStart().event())
            await connection.write_event(SynthesizeChunk(half).event())
            events = await until_event(connection, AudioChunk)
            while len(audio(events)) < len(spoken(half)):
                events += await until_event(connection, AudioChunk)
            assert audio(events) == spoken(half, engine.opened[-1].sampling.seed)
    for wrong in ("5", "60_001", '"200"', "true", "0.5"):
        keys.write_text(table("ada", ADA, f"max_buffer_delay_ms = {wrong}"))
        with pytest.raises(ApiKeysError, match="max_buffer_delay_ms must be a whole number of 10 to 60000, not "):
            ApiKeys(keys)


async def until_audio(socket: Any) -> bytes:
    while not isinstance(data := (await socket.receive(timeout=60)).data, bytes):
        pass
    return data


async def test_a_policy_does_not_go_with_splitting() -> None:
    async with gateway(FakeEngine()) as door:
        for policy in ({"commit": "manual"}, {"max_buffer_delay_ms": 100}, {"first_chunk_min_chars": 5}):
            async with connect(door) as socket:
                await socket.send_json({**PCM, "split_granularity": "sentence", **policy})
                message = await socket.receive_json(timeout=60)
                assert message["type"] == "error" and "only without split_granularity" in str(message)
