"""POST /tts/sse: speaks a whole text and answers with server-sent events."""

import secrets
from contextlib import aclosing
from typing import Any

from aiohttp import web

from sonorant.gateway.cartesia.answers import chunk_head, done_message, error_message, timestamps
from sonorant.gateway.cartesia.request import Message
from sonorant.gateway.clip import spoken
from sonorant.gateway.encoders import raw_encoder
from sonorant.gateway.errors import Refusal
from sonorant.gateway.upstream.endings import told_at_end
from sonorant.gateway.web.bodies import read_model
from sonorant.gateway.web.context import CALL, CATALOGS, CONFIG
from sonorant.gateway.web.http import EVENT_STREAM, Answer
from sonorant.gateway.web.json_text import json_text, with_audio
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest


async def tts_sse(request: web.Request) -> web.StreamResponse:
    body = await read_model(request, Message)
    body.check_text()
    config = body.to_speak_config(
        await request.app[CATALOGS].get(request[CALL]), request.app[CONFIG].cartesia_text_format
    )
    upstream = SynthesizeStreamRequest(config=config.synthesis, text=body.transcript, timestamps=config.timestamps)
    encode = raw_encoder(body.output_format.encoding, body.output_format.sample_rate)
    context_id = body.context_id or f"ctx-{secrets.token_hex(8)}"
    head = chunk_head(context_id)
    ending = dict[str, Any]()
    async with Answer(request, EVENT_STREAM) as answer:
        try:
            async with aclosing(spoken(request, upstream)) as messages:
                async for message in messages:
                    if message.HasField("audio") and (data := await encode.encode(message.audio.data)):
                        await answer.write(_event("chunk", with_audio(head, data)))
                    elif message.HasField("done"):
                        ending = told_at_end(message.done, request[CALL])
                    elif message.HasField("marks"):
                        await answer.write(_told(timestamps(context_id, message.marks)))
            if rest := await encode.finish():
                await answer.write(_event("chunk", with_audio(head, rest)))
        except Refusal as refusal:
            if answer.begun:
                await answer.write(_told(error_message(refusal, context_id)))
            raise
        await answer.write(_told(done_message(context_id, ending)))
        return await answer.end()


def _told(message: dict[str, Any]) -> bytes:
    return _event(message["type"], json_text(message))


def _event(kind: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
