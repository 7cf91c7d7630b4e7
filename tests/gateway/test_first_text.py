"""What is known when a call is made goes with it, through each door that speaks text in pieces."""

from typing import Any

import aiohttp
import pytest
from wyoming.client import AsyncTcpClient
from wyoming.tts import Synthesize, SynthesizeVoice

from tests.clients.scripted_server import LOUD, Speech, scripted_server
from tests.gateway.cartesia_client import Heard, text
from tests.gateway.harness import Door, gateway
from tests.service.fake_engine import FakeEngine

SAID = "at once"


async def by_stream(door: Door, voice: str) -> tuple[bytes, str]:
    """The audio of a text, and the code of the error."""
    audio, code = b"", ""
    config = {"type": "session.config", "voice": voice, "response_format": "pcm", "stream_audio": True}
    async with door.http.ws_connect("/v1/audio/speech/stream") as socket:
        for message in (config, {"type": "input.text", "text": SAID}, {"type": "input.done"}):
            await socket.send_json(message)
        while True:
            received = await socket.receive(timeout=60)
            if received.type is aiohttp.WSMsgType.BINARY:
                audio += received.data
            elif (told := received.json())["type"] == "error":
                code = told["code"]
            elif told["type"] == "session.done":
                return audio, code


async def by_cartesia(door: Door, voice: str) -> tuple[bytes, str]:
    async with door.http.ws_connect("/tts/websocket") as socket:
        heard = Heard(socket)
        await socket.send_json(text("a", SAID, more=False, voice={"mode": "id", "id": voice}))
        while not (heard.done or heard.errors):
            await heard.next()
        return heard.audio.get("a", b""), heard.errors.get("a", {}).get("error_code", "")


async def by_wyoming(door: Door, voice: str) -> tuple[bytes, str]:
    audio = b""
    async with AsyncTcpClient("127.0.0.1", door.wyoming_port) as connection:
        await connection.write_event(Synthesize(SAID, SynthesizeVoice(name=voice)).event())
        while event := await connection.read_event():
            if event.type == "audio-chunk":
                audio += event.payload or b""
            elif event.type in ("audio-stop", "error"):
                return audio, event.data.get("code", "")
    raise AssertionError("the connection ended")


DOORS = (by_stream, by_cartesia, by_wyoming)


def doors_of(target: str) -> Any:
    return gateway(FakeEngine(), servers=(target,), wyoming_listen="127.0.0.1:0")


def payloads(speech: Speech) -> list[str | None]:
    return [request.WhichOneof("payload") for request in speech.received]


async def test_a_text_does_not_wait_for_the_servers_answer() -> None:
    async with scripted_server() as (target, speech), doors_of(target) as door:
        speech.greets_after_text = True
        for speak in DOORS:
            speech.received.clear()
            assert await speak(door, "anna") == (LOUD * len(SAID), ""), speak
            assert payloads(speech) == ["config", "text", "end"], "each once"


@pytest.mark.parametrize("hidden", [0, 1])
async def test_a_refusal_keeps_its_words_whatever_was_sent_with_the_call(hidden: int) -> None:
    async with scripted_server() as (target, speech), doors_of(target) as door:
        for speak in DOORS:
            for voice, code in (("busy", "no_place"), ("nobody", "voice_not_found"), ("locked", "invalid_api_key")):
                speech.hides_refusals = hidden
                assert await speak(door, voice) == (b"", code), speak


async def test_what_was_sent_with_a_call_that_came_to_nothing_is_said_once() -> None:
    async with scripted_server() as (target, speech), doors_of(target) as door:
        for speak in DOORS:
            speech.received.clear()
            speech.hides_refusals = 1
            assert await speak(door, "anna") == (LOUD * len(SAID), ""), speak
            assert payloads(speech)[-3:] == ["config", "text", "end"]
