"""A sentence as a language model writes it, with no text and no end after it: its audio at each door."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
from wyoming.audio import AudioChunk
from wyoming.client import AsyncTcpClient
from wyoming.tts import SynthesizeChunk, SynthesizeStart

from sonorant.service.rpc.riva import SERVICE as RIVA
from sonorant.tts.riva.v1 import riva_pb2
from sonorant.tts.v1 import speak_pb2
from tests.gateway.cartesia_client import text as to_cartesia
from tests.service.harness import Stub, config, say

TEXT = "Let me look that up for you."
SENT = ("Let me", " look that", " up for you", ". ")


async def over_grpc(stub: Stub, **policy: int) -> AsyncIterator[bytes]:
    settings = config()
    settings.text_policy.MergeFrom(speak_pb2.TextPolicy(**policy))
    call = stub.Speak()
    await call.write(speak_pb2.SpeakRequest(config=settings))
    for piece in SENT:
        await call.write(say(piece))
    async for response in call:
        yield response.audio.data
    raise AssertionError("it ended")


async def over_riva(channel: grpc.aio.Channel) -> AsyncIterator[bytes]:
    write, read = riva_pb2.SynthesizeSpeechRequest.SerializeToString, riva_pb2.SynthesizeSpeechResponse.FromString
    call = channel.stream_stream(f"/{RIVA}/SynthesizeOnline", write, read)()
    for piece in SENT:
        await call.write(riva_pb2.SynthesizeSpeechRequest(text=piece, encoding=riva_pb2.RIVA_ENCODING_LINEAR_PCM))
    async for response in call:
        yield response.audio
    raise AssertionError("it ended")


async def over_websocket(http: aiohttp.ClientSession, **fields: Any) -> AsyncIterator[bytes]:
    async with http.ws_connect("/v1/audio/speech/stream") as socket:
        about = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
        await socket.send_json({**about, **fields})
        for piece in SENT:
            await socket.send_json({"type": "input.text", "text": piece})
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                yield message.data


async def over_cartesia(http: aiohttp.ClientSession, **fields: Any) -> AsyncIterator[bytes]:
    async with http.ws_connect("/tts/websocket") as socket:
        for piece in SENT:
            await socket.send_json(to_cartesia("a", piece, voice={"mode": "id", "id": "default"}, **fields))
        async for message in socket:
            yield base64.b64decode(message.json().get("data", ""))


async def over_wyoming(port: int) -> AsyncIterator[bytes]:
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(SynthesizeStart().event())
        for piece in SENT:
            await client.write_event(SynthesizeChunk(piece).event())
        while (event := await client.read_event()) is not None:
            if AudioChunk.is_type(event.type):
                yield AudioChunk.from_event(event).audio
