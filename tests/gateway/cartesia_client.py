"""Cartesia's wire as its clients write it, one message at a time."""

import base64
from typing import Any

import aiohttp


def text(context_id: str, transcript: str, *, more: bool = True, **fields: Any) -> dict[str, Any]:
    return {
        "context_id": context_id,
        "transcript": transcript,
        "continue": more,
        "model_id": "sonic-3",
        "voice": {"mode": "id", "id": "ada"},
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000},
        "add_timestamps": True,
        **fields,
    }


def end(context_id: str) -> dict[str, Any]:
    return text(context_id, "", more=False)


class Heard:
    """What came back, by contexts."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.audio: dict[str, bytes] = {}
        self.words: dict[str, list[str]] = {}
        self._told_s: dict[str, float] = {}  # when the last of them is over
        self.errors: dict[str | None, dict[str, Any]] = {}
        self.done: list[str] = []

    async def next(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._socket.receive_json(timeout=60)
        context_id = message["context_id"]
        match message["type"]:
            case "chunk":
                self.audio[context_id] = self.audio.get(context_id, b"") + base64.b64decode(message["data"])
            case "timestamps":
                told = message["word_timestamps"]
                self.words.setdefault(context_id, []).extend(told["words"])
                for begin_s, end_s in zip(told["start"], told["end"], strict=True):
                    assert self._told_s.get(context_id, 0.0) <= begin_s < end_s, "after the words before it"
                    self._told_s[context_id] = end_s
            case "done":
                assert message["done"] is True
                self.done.append(context_id)
            case "error":
                assert not message.get("done")
                self.errors[context_id] = message
        return message

    async def until_done(self, *contexts: str) -> None:
        while not set(contexts) <= set(self.done):
            await self.next()
