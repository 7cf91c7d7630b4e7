"""A text whose audio ends early: every door says so, in a word of its own last message."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from wyoming.audio import AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.tts import Synthesize

from sonorant.engine import FinishReason
from sonorant.service.utterance.speech import Speech
from tests.gateway.cartesia_client import text
from tests.gateway.harness import Door, gateway
from tests.service.fake_engine import FakeEngine

SAID = "nothing but this"
REASONS = [(FinishReason.MAX_FRAMES, "length"), (FinishReason.RUNAWAY, "runaway"), (FinishReason.COMPLETED, None)]


class EndingEngine(FakeEngine):
    """Ends each stream with a reason of its own."""

    def __init__(self, reason: FinishReason) -> None:
        super().__init__()
        self._reason = reason

    def open(self, *arguments: Any, **options: Any) -> Any:
        stream = super().open(*arguments, **options)
        end = stream.end
        stream.end = lambda reason, detail="": end(self._reason if reason is FinishReason.COMPLETED else reason, detail)
        return stream


class AsciiEngine(FakeEngine):
    """Its checkpoint knows ASCII alone."""

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(self.info, characters="ascii")
        self.infos = (self.info,)


async def last_event(door: Door, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with door.http.post(path, json=body) as response:
        assert response.status == 200
        lines = [line for line in (await response.text()).splitlines() if line.startswith("data: ")]
    return dict(json.loads(lines[-1].removeprefix("data: ")))


async def last_messages(door: Door, said: str) -> list[dict[str, Any]]:
    """Return the last message of each door; of an answer with word times, its headers."""
    speech = {"input": said, "voice": "ada", "seed": 1, "response_format": "pcm"}
    messages = [await last_event(door, "/v1/audio/speech", {**speech, "stream_format": "sse"})]
    assert messages[-1]["type"] == "speech.audio.done"

    async with door.http.post("/v1/audio/speech", json={**speech, "word_timestamps": True}) as response:
        assert response.status == 200
        messages.append(dict(response.headers))

    messages.append(await last_event(door, "/tts/sse", text("a", said, more=False)))
    assert messages[-1]["type"] == "done"

    async with door.http.ws_connect("/tts/websocket") as socket:
        await socket.send_json(text("a", said, more=False))
        while (message := await socket.receive_json(timeout=60))["type"] != "done":
            pass
        messages.append(message)

    async with door.http.ws_connect("/v1/audio/speech/stream") as socket:
        await socket.send_json({"type": "session.config", **speech, "stream_audio": True})
        await socket.send_json({"type": "input.text", "text": said})
        await socket.send_json({"type": "input.done"})
        done: dict[str, Any] = {}
        while done.get("type") != "audio.done":
            message = await socket.receive(timeout=60)
            done = message.json() if message.type is aiohttp.WSMsgType.TEXT else {}
        messages.append(done)

    async with AsyncTcpClient("127.0.0.1", door.wyoming_port) as client:
        await client.write_event(Synthesize(said).event())
        while (event := await client.read_event()) is not None and not AudioStop.is_type(event.type):
            pass
        assert event is not None
        messages.append(event.data)
    return messages


@pytest.mark.parametrize(("reason", "told"), REASONS, ids=lambda value: getattr(value, "name", value))
async def test_every_door_tells_it(reason: FinishReason, told: str | None) -> None:
    async with gateway(EndingEngine(reason), wyoming_listen="127.0.0.1:0") as door:
        for message in await last_messages(door, SAID):
            assert message.get("finish_reason", message.get("X-Finish-Reason")) == told


@pytest.mark.parametrize(
    ("said", "code"),
    [("So \u0627.", "WORDS_LEFT_OUT"), ("\u05d0!", "NO_SPEAKABLE_TEXT"), ("?!", "NO_SPEAKABLE_TEXT"), (SAID, None)],
)
async def test_every_door_tells_words_that_nobody_hears(said: str, code: str | None) -> None:
    async with gateway(AsciiEngine(), wyoming_listen="127.0.0.1:0") as door:
        for message in await last_messages(door, said):
            told = [each["code"] for each in message.get("warnings", ())] or [message.get("X-Warnings")]
            assert told == [code]


async def test_every_door_tells_words_that_the_model_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Speech, "skipped_words", lambda _: ["but"])
    async with gateway(FakeEngine(), wyoming_listen="127.0.0.1:0") as door:
        for message in await last_messages(door, SAID):
            told = [(each["code"], each["message"][-5:]) for each in message.get("warnings", ())]
            assert told == [("WORDS_SKIPPED", ": but")] or message["X-Warnings"] == "WORDS_SKIPPED"


@pytest.mark.parametrize(
    ("engine", "said", "trailer"),
    [
        (EndingEngine(FinishReason.MAX_FRAMES), SAID, "X-Finish-Reason: length\r\n"),
        (EndingEngine(FinishReason.RUNAWAY), SAID, "X-Finish-Reason: runaway\r\nX-Warnings: RUNAWAY\r\n"),
        (AsciiEngine(), "So \u0627.", "X-Warnings: WORDS_LEFT_OUT\r\n"),
        (AsciiEngine(), SAID, ""),
    ],
    ids=["length", "runaway", "words", "all"],
)
@pytest.mark.parametrize("path", ["/v1/audio/speech", "/tts/bytes"])
async def test_a_plain_answer_tells_it_in_a_trailer(engine: FakeEngine, said: str, trailer: str, path: str) -> None:
    async with gateway(engine) as door:
        body = {"input": said, "voice": "ada", "response_format": "pcm"}
        fields = json.dumps(body if path.startswith("/v1") else text("a", said, more=False))
        host, port = door.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Connection: close\r\nContent-Length: {len(fields)}\r\n\r\n{fields}".encode())
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
        async with door.http.post(path, data=fields, headers={"Content-Type": "application/json"}) as response:
            whole = await response.read()
    head, _, chunks = answer.partition(b"\r\n\r\n")
    assert b"Trailer: X-Finish-Reason, X-Warnings" in head
    audio = b""
    while size := int((line := chunks.split(b"\r\n", 1))[0], 16):
        audio, chunks = audio + line[1][:size], line[1][size + 2 :]
    assert line[1] == f"{trailer}\r\n".encode()
    assert len(audio) == len(whole) > 0, "stock clients hear all of it"


async def test_a_trailer_leaves_the_connection_to_the_next_request() -> None:
    async with gateway(EndingEngine(FinishReason.MAX_FRAMES)) as door:
        host, port = door.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
        fields = json.dumps({"input": SAID, "voice": "ada", "response_format": "pcm"}).encode()
        head = "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for _ in range(3):
            writer.write(f"{head}Content-Length: {len(fields)}\r\n\r\n".encode() + fields)
            async with asyncio.timeout(60):
                answer = await reader.readuntil(b"X-Finish-Reason: length\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
