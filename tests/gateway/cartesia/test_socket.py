"""Cartesia's WebSocket, to the sample and to the message."""

import base64
import io
import json
from typing import Any

import aiohttp
import av
import numpy as np
import pytest

from sonorant.service.session import config
from tests.gateway.cartesia_client import Heard, end, text
from tests.gateway.harness import Door, gateway
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually
from tests.service.keys import ADA, table
from tests.written_texts import TOKENS

SAID = "word by word"


def connect(door: Door, **options: Any) -> Any:
    return door.http.ws_connect("/tts/websocket", **options)


def tones(engine: FakeEngine, said: str) -> bytes:
    """The audio of a text, by the seed that the server drew for it."""
    return spoken(said, engine.opened[-1].sampling.seed)


async def test_a_text_in_pieces_is_one_utterance_with_its_words() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        heard = Heard(socket)
        for piece in ("word ", "by ", "word"):
            await socket.send_json(text("a", piece))
        await socket.send_json(end("a"))
        await heard.until_done("a")
    assert heard.audio["a"] == tones(engine, SAID) and heard.words["a"] == SAID.split()
    assert heard.done == ["a"] and not heard.errors and len(engine.opened) == 1


async def test_audio_comes_before_the_text_is_complete() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        heard = Heard(socket)
        await socket.send_json(text("a", "word "))
        assert (await heard.next())["type"] in ("chunk", "timestamps")
        while "a" not in heard.audio:
            await heard.next()
        await socket.send_json(end("a"))
        await heard.until_done("a")


async def test_the_words_are_those_of_the_whole_text() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        heard = Heard(socket)
        for pieces in TOKENS:
            said = "".join(pieces)
            for piece in pieces:
                await socket.send_json(text(said, piece))
            await socket.send_json(end(said))
            await heard.until_done(said)
            assert heard.words[said] == said.split() and heard.audio[said] == tones(engine, said)


@pytest.mark.parametrize("fields", [{}, {"max_buffer_delay_ms": 100}])
async def test_a_finished_sentence_is_spoken_to_its_end_without_more_text(fields: dict[str, int]) -> None:
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        heard = Heard(socket)
        for piece in ("Let me ", "look that up.", " "):
            await socket.send_json(text("a", piece, **fields))
        while "a" not in heard.audio or heard.audio["a"] != tones(engine, "Let me look that up. "):
            await heard.next()
        await socket.send_json(end("a"))
        await heard.until_done("a")


async def test_text_that_comes_late_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends a context that was left open, and the next text opens it again."""
    monkeypatch.setattr(config, "DEFAULT_IDLE_TIMEOUT_MS", 100)
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        for late in ("a", "b ", "c."):
            heard = Heard(socket)
            await socket.send_json(text("a", late))
            await heard.until_done("a")
            assert heard.audio["a"] == tones(engine, late)


async def test_contexts_speak_side_by_side() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        heard = Heard(socket)
        await socket.send_json(text("open", "still "))
        await socket.send_json(text("a", "short", more=False))
        await heard.until_done("a")
        assert "open" not in heard.done
        await socket.send_json(end("open"))
        await heard.until_done("open")


async def test_the_end_of_a_context_that_never_was_is_done() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        heard = Heard(socket)
        await socket.send_json(text("never", " ", more=False))
        await heard.until_done("never")
        assert not heard.audio


async def test_a_cancel_frees_the_stream_and_the_rest_is_not_spoken() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with gateway(engine) as door, connect(door) as socket:
        heard = Heard(socket)
        await socket.send_json(text("a", SAID * 20))
        while "a" not in heard.audio:
            await heard.next()
        await socket.send_json({"context_id": "a", "cancel": True})
        await socket.send_json(text("a", "the rest of the sentence"))
        await heard.until_done("a")
        await eventually(lambda: len(engine.live), 0, 2.0)
        await socket.send_json(text("b", SAID, more=False))
        await heard.until_done("b")
    assert len(engine.opened) == 2


async def test_a_cancel_is_heard_after_the_end_of_the_text() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with gateway(engine) as door, connect(door) as socket:
        heard = Heard(socket)
        await socket.send_json(text("a", SAID * 20, more=False))
        while "a" not in heard.audio:
            await heard.next()
        await socket.send_json({"context_id": "a", "cancel": True})
        await heard.until_done("a")
        await eventually(lambda: len(engine.live), 0, 2.0)
        assert len(heard.audio["a"]) < len(tones(engine, SAID * 20)) / 2


async def test_a_socket_that_is_closed_frees_its_streams() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with gateway(engine) as door:
        async with connect(door) as socket:
            for name in ("a", "b"):
                await socket.send_json(text(name, SAID * 20))
            await eventually(lambda: len(engine.live), 2)
        await eventually(lambda: len(engine.live), 0, 2.0)


async def test_too_many_contexts_are_refused() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        heard = Heard(socket)
        for number in range(9):
            await socket.send_json(text(f"c{number}", "word "))
        while not heard.errors:
            await heard.next()
    assert heard.errors["c8"]["status_code"] == 429


async def test_errors_name_their_context_and_the_socket_lives_on() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        heard = Heard(socket)
        await socket.send_json(text("a", SAID, voice={"mode": "id", "id": "nobody"}))
        await heard.next()
        assert (heard.errors["a"]["status_code"], heard.errors["a"]["error_code"]) == (404, "voice_not_found")
        assert heard.errors["a"]["message"].startswith("voice: no voice 'nobody'")
        await socket.send_json(text("b", SAID, output_format={"container": "wav"}))
        await heard.next()
        assert heard.errors["b"]["status_code"] == 400
        await socket.send_json(text("c", "bell \x07"))
        while "c" not in heard.errors:
            await heard.next()
        for wrong in ("no json", json.dumps([1]), json.dumps({"context_id": 7})):
            await socket.send_str(wrong)
            assert (await heard.next())["type"] == "error"
        await socket.send_bytes(b"\xff")
        assert (await heard.next())["type"] == "error"
        await socket.send_json(text("d", SAID, more=False))
        await heard.until_done("d")


async def test_formats_are_those_asked_for() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        heard = Heard(socket)
        for name, encoding, rate, size in (
            ("float", "pcm_f32le", 24_000, 4 * 24_000),
            ("mulaw", "pcm_mulaw", 8_000, 8_000),
            ("wide", "pcm_s16le", 48_000, 2 * 48_000),
        ):
            output = {"container": "raw", "encoding": encoding, "sample_rate": rate}
            await socket.send_json(text(name, SAID, more=False, output_format=output))
            await heard.until_done(name)
            assert len(heard.audio[name]) == size * len(SAID) * 2 * 80 // 1000, name
            if name == "float":
                expected = np.frombuffer(tones(engine, SAID), "<i2") / np.float32(32_768)
                assert np.array_equal(np.frombuffer(heard.audio[name], "<f4"), expected)


async def test_a_flush_is_answered_and_the_context_stays() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        heard = Heard(socket)
        await socket.send_json(text("a", "word "))
        await socket.send_json(text("a", "", flush=True))
        while (await heard.next())["type"] != "flush_done":
            pass
        await socket.send_json(text("a", "more", more=False))
        await heard.until_done("a")


async def test_a_wrong_key_is_refused_at_the_door(tmp_path: Any) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(table("ada", ADA))
    async with gateway(FakeEngine(), server={"api_keys": keys}, headers={"X-API-Key": ADA}) as door:
        for options in ({"headers": {"X-API-Key": "wrong"}}, {"headers": {"X-API-Key": ""}}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await connect(door, **options)
            assert caught.value.status == 401
        # As a browser does it, which cannot set headers.
        async with connect(door, headers={"X-API-Key": ""}, protocols=("sonorant", f"sonorant-key.{ADA}")) as socket:
            assert socket.protocol == "sonorant"
            heard = Heard(socket)
            await socket.send_json(text("a", SAID, more=False))
            await heard.until_done("a")


async def test_a_drain_lets_what_is_spoken_end_and_closes_the_socket() -> None:
    engine = FakeEngine(frame_s=0.002)
    async with gateway(engine) as door, connect(door) as socket, connect(door) as idle:
        heard = Heard(socket)
        await socket.send_json(text("a", SAID * 3, more=False))
        await eventually(lambda: len(engine.live), 1)
        door.drain.set()
        assert (await idle.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE
        await heard.until_done("a")
        assert (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE
    assert heard.audio["a"] == tones(engine, SAID * 3)


async def test_whole_texts_by_http() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door:
        body = {"transcript": SAID, "voice": {"mode": "id", "id": "ada"}, "output_format": {"container": "raw"}}
        async with door.http.post("/tts/bytes", json=body) as response:
            assert (response.status, await response.read()) == (200, tones(engine, SAID))
        output: dict[str, Any] = {"container": "mp3", "encoding": None, "sample_rate": 24_000, "bit_rate": 128_000}
        async with door.http.post("/tts/bytes", json={**body, "output_format": output}) as response:
            assert (response.status, response.content_type) == (200, "audio/mpeg") and await response.read()
        seconds = len(SAID) * 2 * 0.08
        for encoding, codec in (
            ("s16le", "pcm_s16le"),
            ("f32le", "pcm_f32le"),
            ("mulaw", "pcm_mulaw"),
            ("alaw", "pcm_alaw"),
        ):
            output = {"container": "wav", "encoding": f"pcm_{encoding}", "sample_rate": 8000}
            async with door.http.post("/tts/bytes", json={**body, "output_format": output}) as response:
                assert (response.status, response.content_type) == (200, "audio/wav")
                data = await response.read()
            with av.open(io.BytesIO(data)) as container:
                assert container.streams.audio[0].codec_context.name == codec
                assert sum(frame.samples for frame in container.decode(audio=0)) == seconds * 8000
        async with door.http.post("/tts/bytes", json={**body, "transcript": " "}) as response:
            assert response.status == 400


async def test_whole_texts_as_events() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door:
        async with door.http.post("/tts/sse", json=text("a", SAID)) as response:
            assert response.content_type == "text/event-stream"
            events = [event.split("\n") for event in (await response.text()).split("\n\n") if event]
        messages = [json.loads(data.removeprefix("data: ")) for _, data in events]
        assert [kind.removeprefix("event: ") for kind, _ in events] == [message["type"] for message in messages]
        assert {message["context_id"] for message in messages} == {"a"} and messages[-1]["done"] is True
        audio = b"".join(base64.b64decode(message["data"]) for message in messages if message["type"] == "chunk")
        words = [w for m in messages if m["type"] == "timestamps" for w in m["word_timestamps"]["words"]]
        assert (audio, words) == (tones(engine, SAID), SAID.split())
        for wrong, status in (
            ({"transcript": " "}, 400),
            ({"voice": "nobody"}, 404),
            ({"output_format": {"container": "wav"}}, 400),
        ):
            async with door.http.post("/tts/sse", json={**text("a", SAID), **wrong}) as response:
                assert response.status == status and (await response.json())["error"]["message"]
        async with door.http.post("/tts/sse", json=text("a", "...")) as response:
            assert (await response.text()).count("event: chunk") == 1, "silence, since clients take nothing for a fault"


async def test_fields_may_be_null_the_voice_its_id_and_the_language_a_locale() -> None:
    engine = FakeEngine()
    nothing = ("language", "generation_config", "max_buffer_delay_ms", "add_timestamps", "flush", "cancel", "continue")
    said = {**text("a", SAID, voice="bob"), **dict.fromkeys(nothing), "locale": "German"}
    said["output_format"] = {"container": None, "encoding": "pcm_s16le", "sample_rate": 24_000}
    async with gateway(engine) as door, connect(door) as socket:
        heard = Heard(socket)
        await socket.send_json(said)
        await heard.until_done("a")
        async with door.http.post("/tts/bytes", json=said) as response:
            assert response.status == 200 and await response.read()
    assert {(params.speaker, params.language) for params in engine.opened} == {("bob", "german")} and not heard.errors


async def test_a_cancel_that_comes_too_late_does_not_silence_the_next_text_of_that_name() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        for _ in range(2):
            heard = Heard(socket)
            await socket.send_json(text("a", SAID, more=False))
            await heard.until_done("a")
            assert heard.audio["a"] == tones(engine, SAID)
            await socket.send_json({"context_id": "a", "cancel": True})


@pytest.mark.parametrize(
    "wrong",
    [
        {"transcript": "\ud800"},
        {"output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 2**32}},
        {"language": "\udfff"},
        {"voice": {"mode": "embedding", "embedding": ["x"] * 60_000}},
    ],
)
async def test_what_fits_into_no_field_is_told_and_the_socket_lives_on(wrong: dict[str, Any]) -> None:
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        heard = Heard(socket)
        await socket.send_str(json.dumps({**text("a", SAID, more=False), **wrong}))
        await heard.next()
        assert heard.errors
        await socket.send_json(text("b", SAID, more=False))
        await heard.until_done("b")
        assert heard.audio["b"] == tones(engine, SAID)
        body = {**text("c", SAID, more=False), **wrong}
        async with door.http.post("/tts/bytes", data=json.dumps(body)) as response:
            assert response.status == 400
