"""A listener at the WebSocket of vLLM-Omni and SGLang-Omni."""

import base64
from typing import Any

import aiohttp

from tests.gateway.harness import Door

PCM = {"type": "session.config", "voice": "ada", "response_format": "pcm", "stream_audio": True, "seed": 1}

Message = dict[str, Any]


def connect(door: Door, **options: Any) -> Any:
    return door.http.ws_connect("/v1/audio/speech/stream", **options)


async def until(socket: aiohttp.ClientWebSocketResponse, kind: str) -> tuple[list[Message], bytes]:
    """Messages up to and including one of a kind, and the audio between them."""
    messages, audio = [], b""
    while True:
        message = await socket.receive(timeout=60)
        if message.type is aiohttp.WSMsgType.BINARY:
            audio += message.data
            continue
        assert message.type is aiohttp.WSMsgType.TEXT, message
        messages.append(message.json())
        if "audio_b64" in messages[-1]:
            audio += base64.b64decode(messages[-1]["audio_b64"])
        if messages[-1]["type"] == kind:
            return messages, audio


async def say(socket: aiohttp.ClientWebSocketResponse, *texts: str, done: bool = True) -> None:
    for text in texts:
        await socket.send_json({"type": "input.text", "text": text})
    if done:
        await socket.send_json({"type": "input.done"})
