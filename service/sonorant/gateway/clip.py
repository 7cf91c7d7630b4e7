"""A whole text in, its audio out over HTTP as it is made: what the doors of OpenAI and of Cartesia have in common."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from sonorant.gateway.context import CALL, DOOR, METRICS, SERVERS
from sonorant.gateway.encoders import Encoder
from sonorant.gateway.errors import Refusal
from sonorant.gateway.http import Answer
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest, SynthesizeStreamResponse


async def spoken(
    request: web.Request, upstream: SynthesizeStreamRequest
) -> AsyncGenerator[SynthesizeStreamResponse, None]:
    """What the server answers; nothing for a text without anything to say, which is silence rather than an error."""
    with request.app[METRICS].speaking(request[DOOR]) as speaking:
        try:
            async with aclosing(request.app[SERVERS].clip(upstream, request[CALL])) as messages:
                async for message in messages:
                    if message.HasField("audio"):
                        speaking.audio(len(message.audio.data))
                    yield message
        except Refusal as refusal:
            if refusal.code != "no_speakable_text":
                raise


async def answer_with_bytes(
    request: web.Request, upstream: SynthesizeStreamRequest, encode: Encoder, content_type: str
) -> web.StreamResponse:
    """Begins with the first audio, so that what is wrong before it is an error; after it, the connection is cut off."""
    async with (
        Answer(request, {"Content-Type": content_type}) as answer,
        aclosing(spoken(request, upstream)) as messages,
    ):
        async for message in messages:
            if message.HasField("audio"):
                await answer.write(await encode.encode(message.audio.data))
        await answer.write(await encode.finish())
        return await answer.end()
