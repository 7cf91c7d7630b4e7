"""Speaks a whole text and streams its audio over HTTP; used by the OpenAI and the Cartesia endpoints."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from aiohttp import web

from sonorant.gateway.encoders import AudioEncoder
from sonorant.gateway.errors import Refusal
from sonorant.gateway.upstream.endings import HEADERS, as_headers, told_at_end
from sonorant.gateway.web.context import CALL, DOOR, METRICS, SERVERS
from sonorant.gateway.web.http import Answer
from sonorant.tts.v1.speak_pb2 import SpeakResponse
from sonorant.tts.v1.synthesis_pb2 import SynthesisStats, UtteranceDone, Warning
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest


async def spoken(request: web.Request, upstream: SynthesizeStreamRequest) -> AsyncGenerator[SpeakResponse, None]:
    """Yield the server's answers. A text with nothing to speak is silence here and not an error."""
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
            warning = Warning(code="NO_SPEAKABLE_TEXT", message=refusal.message)
            stats = SynthesisStats(input_chars=len(upstream.text))
            yield SpeakResponse(done=UtteranceDone(stats=stats, warnings=[warning]))


async def answer_with_bytes(
    request: web.Request, upstream: SynthesizeStreamRequest, encode: AudioEncoder, content_type: str
) -> web.StreamResponse:
    """Answer with the encoded audio. The answer begins with the first audio: a failure before that is an HTTP error, a
    failure after it cuts the connection off. Trailers tell that not all of the text was spoken."""
    ending = dict[str, Any]()
    async with (
        Answer(request, {"Content-Type": content_type, "Trailer": HEADERS}) as answer,
        aclosing(spoken(request, upstream)) as messages,
    ):
        async for message in messages:
            if message.HasField("audio"):
                await answer.write(await encode.encode(message.audio.data))
            elif message.HasField("done"):
                ending = told_at_end(message.done, request[CALL])
        await answer.write(await encode.finish())
        return await answer.end(as_headers(ending))
