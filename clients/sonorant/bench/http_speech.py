"""Speaks utterances in OpenAI's and Cartesia's protocols: bytes, events and WebSockets. Needs aiohttp."""

import asyncio
import base64
import itertools
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from sonorant.bench.loads import SpokenLoad, Target
from sonorant.bench.speakers import SAMPLE_RATE_HZ, Budget, Speaker, SpeakingFailed
from sonorant.bench.voices import Voices
from sonorant.client.listening.playback import PlaybackMeter

KEY_VARIABLE = "OPENAI_API_KEY"
MAX_ERROR_CHARS = 300
READ_AHEAD_BYTES = 2**20  # an event is one line, with audio in base64


@asynccontextmanager
async def http_speaker(target: Target, speech: SpokenLoad, keys: Sequence[str] = ()) -> AsyncIterator[Speaker]:
    """Yield a speaker for a target whose protocol is none of gRPC's."""
    trusted = ssl.create_default_context(cafile=target.ca) if target.ca else True
    connector = aiohttp.TCPConnector(limit=0, ssl=trusted)  # the load limits the number of connections
    timeout = aiohttp.ClientTimeout(total=None)  # and the time
    keys = keys or [os.environ.get(KEY_VARIABLE, "")]
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=READ_AHEAD_BYTES) as session:
        by_socket = {"openai-websocket": WebSocketSpeaker, "cartesia": CartesiaSpeaker}
        yield by_socket.get(target.protocol, RequestSpeaker)(session, target, speech, keys)


class _HttpSpeaker(Speaker):
    outside = ""  # the end of the base URL that the path does not have
    path: str

    def __init__(self, session: aiohttp.ClientSession, target: Target, speech: SpokenLoad, keys: Sequence[str]) -> None:
        self._session = session
        self._target = target
        self._speech = speech
        self._headers = [{"Authorization": f"Bearer {key}"} if key else {} for key in keys]
        self._url = target.address.rstrip("/").removesuffix(self.outside) + self.path


class RequestSpeaker(_HttpSpeaker):
    """POST /v1/audio/speech for each utterance; the answer is PCM, or events with PCM in them."""

    path = "/audio/speech"

    def __init__(self, session: aiohttp.ClientSession, target: Target, speech: SpokenLoad, keys: Sequence[str]) -> None:
        super().__init__(session, target, speech, keys)
        self._has_events = target.protocol == "openai-events"
        self._body = {
            "model": target.model,
            "response_format": "pcm",  # 16-bit little-endian samples at 24 kHz, by the protocol
            "stream": True,
            # bytes unless asked for: without it, vLLM-Omni takes `stream` to mean server-sent events
            "stream_format": "sse" if self._has_events else "audio",
            **({"max_lead_ms": speech.max_lead_ms} if speech.max_lead_ms else {}),
            **dict(target.extra_body),
        }

    async def speak(self, text: str, number: int, meter: PlaybackMeter) -> Budget:
        body = {**voice_fields(self._speech.voices, number), **self._body, "input": text}
        try:
            meter.text_sent(time.monotonic())
            headers = self._headers[number % len(self._headers)]
            async with self._session.post(self._url, json=body, headers=headers) as response:
                if response.status != 200:
                    raise SpeakingFailed(f"HTTP_{response.status}", (await response.text())[:MAX_ERROR_CHARS])
                if self._has_events:
                    await _hear_events(response.content, meter)
                else:
                    await _hear_bytes(response.content, meter)
            return {}
        except aiohttp.ClientError as error:
            raise SpeakingFailed(type(error).__name__, f"{self._url}: {error}") from None

    async def listen(self, text: Callable[[int], str], number: int, meter: PlaybackMeter) -> None:
        """Speak one utterance after another, each in a request of its own. The next is asked for when only the lead of
        the one before is left to play."""
        for n in itertools.count():
            await self.speak(text(n), number, meter)
            await asyncio.sleep(meter.plays_until_s - self._speech.max_lead_ms / 1000 - time.monotonic())


class _SocketSpeaker(_HttpSpeaker):
    """Opens a WebSocket for each utterance, or for each listener."""

    @asynccontextmanager
    async def _socket(self, number: int) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        headers = self._headers[number % len(self._headers)]
        try:
            async with self._session.ws_connect(self._url, headers=headers, max_msg_size=0) as socket:
                yield socket
        except aiohttp.ClientError as error:
            raise SpeakingFailed(type(error).__name__, f"{self._url}: {error}") from None


class WebSocketSpeaker(_SocketSpeaker):
    """The WebSocket /v1/audio/speech/stream, with the fields of Sonorant's gateway."""

    path = "/audio/speech/stream"

    async def speak(self, text: str, number: int, meter: PlaybackMeter) -> Budget:
        async with self._socket(number) as socket:
            await self._configure(socket, number)
            meter.text_sent(time.monotonic())
            await _say(socket, text)
            async for message in _messages(socket, meter):
                if message["type"] == "session.done":
                    break
        return {}

    async def listen(self, text: Callable[[int], str], number: int, meter: PlaybackMeter) -> None:
        """Speak one utterance after another. Each is sent when the one before begins."""
        async with self._socket(number) as socket:
            await self._configure(socket, number)
            meter.text_sent(time.monotonic())
            await _say(socket, text(0))
            num_sent = 1
            async for message in _messages(socket, meter):
                if message["type"] == "audio.start":
                    await _say(socket, text(num_sent))
                    num_sent += 1

    async def _configure(self, socket: aiohttp.ClientWebSocketResponse, number: int) -> None:
        await socket.send_json(
            {
                "type": "session.config",
                "model": self._target.model,
                "response_format": "pcm",
                "stream_audio": True,
                "split_granularity": "none",
                "max_lead_ms": self._speech.max_lead_ms,
                **voice_fields(self._speech.voices, number),
                **dict(self._target.extra_body),
            }
        )


class CartesiaSpeaker(_SocketSpeaker):
    """The WebSocket /tts/websocket beside the base URL, with a preset voice."""

    outside, path = "/v1", "/tts/websocket"

    async def speak(self, text: str, number: int, meter: PlaybackMeter) -> Budget:
        async with self._socket(number) as socket:
            meter.text_sent(time.monotonic())
            await socket.send_json(
                {
                    "context_id": "utterance",
                    "model_id": self._target.model,
                    "transcript": text,
                    "voice": {"mode": "id", "id": self._speech.voices.name or "default"},
                    "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": SAMPLE_RATE_HZ},
                    **dict(self._target.extra_body),
                }
            )
            async for message in _messages(socket, meter):
                if message["type"] == "done":
                    break
        return {}

    async def listen(self, text: Callable[[int], str], number: int, meter: PlaybackMeter) -> None:
        raise SpeakingFailed("UNSUPPORTED", "paced loads need a pace, which this protocol does not have")


def voice_fields(voices: Voices, number: int) -> dict[str, object]:
    """The voice of an utterance, in the fields of OpenAI's API and of vLLM-Omni."""
    if voices.task == "clone":
        recording = voices.recording(number)
        data = base64.b64encode(recording.audio).decode()
        told = {"ref_text": recording.transcript} if recording.transcript else {"x_vector_only_mode": True}
        return {"task_type": "Base", "ref_audio": f"data:audio/wav;base64,{data}", **told}
    if voices.task == "design":
        return {"task_type": "VoiceDesign", "instructions": voices.design}
    return {"voice": voices.name}


async def _say(socket: aiohttp.ClientWebSocketResponse, text: str) -> None:
    await socket.send_json({"type": "input.text", "text": text})
    await socket.send_json({"type": "input.done"})


async def _hear_bytes(content: aiohttp.StreamReader, meter: PlaybackMeter) -> None:
    odd_byte = b""
    async for data in content.iter_any():
        now_s = time.monotonic()
        data = odd_byte + data
        odd_byte = data[len(data) & ~1 :]
        meter.audio_arrived(now_s, len(data) // 2, data[: len(data) & ~1])


async def _hear_events(content: aiohttp.StreamReader, meter: PlaybackMeter) -> None:
    """Take events up to the end of the utterance. Raises UtteranceFailed if it ends otherwise."""
    async for line in content:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[6:])
        _check(event)
        if event.get("type") == "speech.audio.done":
            return
        if "audio" in event:
            _hear(base64.b64decode(event["audio"]), meter)
    raise SpeakingFailed("ENDED", "the answer ended before its last event")


async def _messages(socket: aiohttp.ClientWebSocketResponse, meter: PlaybackMeter) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the messages of a WebSocket, and put their audio on the meter. Raises UtteranceFailed for an error, and
    when the server closes the socket."""
    async for received in socket:
        if received.type is aiohttp.WSMsgType.BINARY:
            _hear(received.data, meter)
        elif received.type is aiohttp.WSMsgType.TEXT:
            message = json.loads(received.data)
            _check(message)
            if message["type"] == "chunk":
                _hear(base64.b64decode(message["data"]), meter)
            yield message
    raise SpeakingFailed("ENDED", f"the server closed the WebSocket with code {socket.close_code}")


def _hear(data: bytes, meter: PlaybackMeter) -> None:
    meter.audio_arrived(time.monotonic(), len(data) // 2, data)


def _check(message: Mapping[str, Any]) -> None:
    if message.get("type") == "error" or message.get("error") is True:
        status = str(message.get("code") or message.get("error_code") or "ERROR").upper()
        raise SpeakingFailed(status, str(message.get("message") or message)[:MAX_ERROR_CHARS])
