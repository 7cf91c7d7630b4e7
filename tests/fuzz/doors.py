"""Noise at the gateway: bodies, forms, heads, WebSockets and Wyoming's events, half right; each gets an answer."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp
from pydantic import BaseModel

from sonorant.gateway.cartesia.request import Generation, Message
from sonorant.gateway.openai.batch import BatchRequest
from sonorant.gateway.openai.request import SpeechRequest
from sonorant.gateway.openai.stream_request import StreamConfig
from tests.fuzz.bytes import mutated
from tests.fuzz.http2 import REST_S, send
from tests.gateway.harness import Door
from tests.gateway.turns import UPGRADE, frame

PATIENCE_S = 20.0
BUGS = range(500, 503)  # 503: the server is busy, or has lost its workers
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 1.5, 1e308, -1e-308, float("nan"), float("inf"), 24_000, 8000, 2**31, 2**32),
    *(2**63, 2**70, "", " ", "a", "ada", "bob", "default", "alloy", "no/body", "\0", "\ud800", "x\udfff", "\U0001f600"),
    *("Hello. It is me!", "!" * 300, "a. " * 100, "pcm", "wav", "mp3", "opus", "flac", "sse", "sentence", "clause"),
    *("pcm_f32le", "pcm_mulaw", "english", "Base", "VoiceDesign", "data:audio/wav;base64,UklGRg==", "data:,x"),
    *([], [None], [1.0] * 8, ["a"] * 3, [[]], {}, {"id": "ada"}, {"id": 7}, {"": {}}, {"mode": "embedding"}),
    *({"container": "wav", "sample_rate": 2**33}, {"encoding": "pcm_alaw", "sample_rate": 8000}, {"speed": 0.5}),
    *([{"audio_path": "data:audio/wav;base64,AAAA", "text": "a"}], [{"input": "a", "voice": 3}, {"input": "b"}]),
)
BODIES: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    "/v1/audio/speech": (SpeechRequest, {"input": "Hello.", "response_format": "pcm"}),
    "/v1/audio/speech/batch": (BatchRequest, {"items": [{"input": "Hello."}, {"input": "You."}]}),
    "/tts/bytes": (Generation, {"transcript": "Hello."}),
}
CONFIG = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
KINDS = ("input.text", "input.text", "input.commit", "input.done", "input.cancel", "session.config", "session.close", 7)
EVENTS = (
    "describe",
    "synthesize",
    "synthesize-start",
    "synthesize-chunk",
    "synthesize-stop",
    "ping",
    "x",
    "audio-start",
)
FORM = (
    b"--x\r\nContent-Disposition: form-data; name=name\r\n\r\nmy voice\r\n"
    b"--x\r\nContent-Disposition: form-data; name=consent\r\n\r\nyes\r\n"
    b"--x\r\nContent-Disposition: form-data; name=prompt\r\n\r\na low voice\r\n"
    b"--x\r\nContent-Disposition: form-data; name=speaker_embedding\r\n\r\n[1.0, 2.0]\r\n--x--\r\n"
)
PATHS = (
    *("/v1/audio/voices", "/v1/audio/voices/ada", "/v1/audio/voices/%ed%a0%80", "/v1/models", "/v1/models/a%2fb"),
    *("/health", "/ready", "/metrics", "/", "/docs", "/openapi.json", "/v1/", "/v1/audio/speech", "/tts/bytes", "/%00"),
)


async def knock(door: Door, rng: random.Random) -> int:
    """At one of the doors; returns how many messages went in."""
    return await rng.choice(WAYS)(door, rng)


def _changed(fields: dict[str, Any], kind: type[BaseModel], rng: random.Random) -> dict[str, Any]:
    """With some fields of a schema set to something."""
    names = [field.alias or name for name, field in kind.model_fields.items()]
    return {**fields, **{rng.choice(names): rng.choice(VALUES) for _ in range(rng.randrange(4))}}


def _as_json(value: Any, rng: random.Random) -> bytes:
    """Now and then damaged."""
    data = json.dumps(value).encode()
    return mutated(data, rng) if rng.random() < 0.3 else data


async def _answered(door: Door, method: str, path: str, what: object, **options: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        try:
            async with door.http.request(method, path, **options) as response:
                await response.read()
        except aiohttp.ClientPayloadError:
            return  # cut off, as what fails half-way has to be
    assert response.status not in BUGS, f"{response.status} of {method} {path}: {what!r}"


async def _body(door: Door, rng: random.Random) -> int:
    path, (kind, fields) = rng.choice([*BODIES.items()])
    data = _as_json(_changed(fields, kind, rng), rng)
    await _answered(door, "POST", path, data, data=data)
    return 1


async def _form(door: Door, rng: random.Random) -> int:
    data = mutated(rng.choice((FORM, b"name=a-voice&prompt=low&consent=yes")), rng)
    kind = rng.choice(
        ("multipart/form-data; boundary=x", "multipart/form-data", "application/x-www-form-urlencoded", "text/plain")
    )
    await _answered(door, "POST", "/v1/audio/voices", data, data=data, headers={"Content-Type": kind})
    return 1


async def _head(door: Door, rng: random.Random) -> int:
    """A request as bytes, some of them changed; what comes back is not judged, as it may be of half a request."""
    body = json.dumps({"input": "Hello.", "response_format": "pcm"}).encode()
    lines = [
        f"{rng.choice(('GET', 'POST', 'DELETE', 'OPTIONS', 'HEAD'))} {rng.choice(PATHS)} HTTP/1.1",
        *("Host: localhost", f"Content-Length: {len(body)}", "Content-Type: application/json"),
        rng.choice(("Origin: http://[", "Origin: http://x", "Expect: 100-continue", "Transfer-Encoding: chunked")),
        rng.choice(("Authorization: Bearer \xff", "X-Request-Id: \xff", "traceparent: 00-", "Content-Encoding: gzip")),
    ]
    data = "\r\n".join((*lines, "", "")).encode("latin-1") + body
    await send(door.url.removeprefix("http://"), mutated(data, rng) if rng.random() < 0.7 else data)
    return 1


async def _stream(door: Door, rng: random.Random) -> int:
    messages = [_changed(CONFIG, StreamConfig, rng) if rng.random() < 0.7 else CONFIG]
    for _ in range(rng.randrange(12)):
        kind = rng.choice(KINDS)
        told = {"type": kind, "text": rng.choice(VALUES), "played_ms": rng.choice(VALUES)}
        messages.append(_changed(told, StreamConfig, rng) if kind == "session.config" else told)
    return await _converse(door, "/v1/audio/speech/stream", messages, rng)


async def _cartesia(door: Door, rng: random.Random) -> int:
    messages = []
    for _ in range(rng.randint(1, 12)):
        told = {"context_id": rng.choice("ab"), "transcript": "Hello. ", "continue": rng.random() < 0.7}
        messages.append(_changed(told, Message, rng))
    return await _converse(door, "/tts/websocket", messages, rng)


async def _converse(door: Door, path: str, messages: list[dict[str, Any]], rng: random.Random) -> int:
    """Through a WebSocket; or the same as frames by hand, some bytes of which are changed."""
    data = [_as_json(message, rng) for message in messages]
    if rng.random() < 0.3:
        frames = b"".join(_frame(each, rng) for each in data)
        await send(door.url.removeprefix("http://"), UPGRADE.format(path=path).encode() + mutated(frames, rng))
        return len(data)
    async with door.http.ws_connect(path) as socket:
        for each in data:
            if socket.closed:
                break
            text = each.decode(errors="replace")
            await (socket.send_bytes(each) if rng.random() < 0.05 else socket.send_str(text))
            if rng.random() < 0.2:
                with suppress(TimeoutError):  # not every message has an answer
                    await socket.receive(timeout=REST_S)
    return len(data)


def _frame(data: bytes, rng: random.Random) -> bytes:
    return frame(data, rng.choice((0x81, 0x81, 0x81, 0x82, 0x01, 0x80, 0x88, 0x89, 0x8A, 0xC1, 0x83)))


async def _wyoming(door: Door, rng: random.Random) -> int:
    events = []
    for _ in range(rng.randint(1, 8)):
        told: dict[str, Any] = {"text": rng.choice((*VALUES, "Hello.")), "voice": rng.choice(VALUES)}
        if rng.random() < 0.3:
            told["voice"] = {"name": rng.choice(VALUES), "language": rng.choice(VALUES)}
        event: dict[str, Any] = {"type": rng.choice(EVENTS)}
        more = b""
        if rng.random() < 0.5:
            event["data"] = rng.choice((*VALUES, told, told, told))
        if rng.random() < 0.5:
            more = json.dumps(told).encode()
            event["data_length"] = len(more)
        events.append(json.dumps(event).encode() + b"\n" + more)
    data = b"".join(events)
    await send(f"127.0.0.1:{door.wyoming_port}", mutated(data, rng) if rng.random() < 0.4 else data)
    return len(events)


WAYS: tuple[Callable[[Door, random.Random], Awaitable[int]], ...] = (_body, _form, _head, _stream, _cartesia, _wyoming)
