"""POST /v1/audio/speech: speaks a whole text and streams its audio, as bytes or as server-sent events."""

import json
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from aiohttp import web

from sonorant.gateway.clip import answer_with_bytes, spoken
from sonorant.gateway.encoders import FORMATS, AudioEncoder, encoder
from sonorant.gateway.errors import Refusal
from sonorant.gateway.openai.request import SpeechRequest
from sonorant.gateway.upstream.endings import as_headers, told_at_end
from sonorant.gateway.web.bodies import read_model
from sonorant.gateway.web.context import CALL, CATALOGS, CONFIG
from sonorant.gateway.web.http import EVENT_STREAM, Answer
from sonorant.gateway.web.json_text import head_of, json_text, with_audio
from sonorant.tts.v1.synthesis_pb2 import TIMESTAMP_MODE_WORD, Mark, SynthesisStats
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest

_DELTA_HEAD = head_of({"type": "speech.audio.delta"}, "audio")
MAX_TIMESTAMPS_BYTES = 4096  # proxies let headers of this size through


async def speech(request: web.Request) -> web.StreamResponse:
    body = await read_model(request, SpeechRequest)
    name = body.response_format or request.app[CONFIG].default_format
    audio, call = FORMATS[name], request[CALL]
    check_format(body, name)
    config = await body.to_config(await request.app[CATALOGS].get(call), "pcm_s16le", request.app[CONFIG].text_format)
    upstream = SynthesizeStreamRequest(config=config, text=body.input, max_lead_ms=body.max_lead_ms)
    if body.word_timestamps and not body.is_sse:
        upstream.ClearField("max_lead_ms")  # nobody listens before all is there
        upstream.timestamps = TIMESTAMP_MODE_WORD
        return await _whole(request, upstream, encoder(name, body.rate_hz, whole=True), audio.content_type)
    encode = encoder(name, body.rate_hz)
    if body.is_sse:
        return await _events(request, upstream, encode)
    return await answer_with_bytes(request, upstream, encode, audio.content_type)


def check_format(body: SpeechRequest, name: str) -> None:
    """Raise Refusal if there is no text, or if the format does not support the sample rate."""
    if not body.input.strip():
        raise Refusal(400, "input: nothing to say; send a text", param="input", code="empty_input")
    rates_hz = FORMATS[name].rates_hz
    if rates_hz and body.rate_hz not in rates_hz:
        rates = ", ".join(map(str, rates_hz))
        raise Refusal(400, f"sample_rate: {name} supports {rates} Hz, not {body.rate_hz}", param="sample_rate")


async def _events(request: web.Request, upstream: SynthesizeStreamRequest, encode: AudioEncoder) -> web.StreamResponse:
    stats, ending = SynthesisStats(input_chars=len(upstream.text)), dict[str, Any]()
    async with Answer(request, EVENT_STREAM) as answer:
        try:
            async with aclosing(spoken(request, upstream)) as messages:
                async for message in messages:
                    if message.HasField("audio") and (data := await encode.encode(message.audio.data)):
                        await answer.write(_delta(data))
                    elif message.HasField("done"):
                        stats, ending = message.done.stats, told_at_end(message.done, request[CALL])
            if rest := await encode.finish():
                await answer.write(_delta(rest))
        except Refusal as refusal:
            if answer.begun:  # LiveKit ignores this event, so the connection is cut off as well
                await answer.write(_event({"type": "error", **refusal.body}))
            raise
        await answer.write(_event({"type": "speech.audio.done", "usage": usage(stats), **ending}))
        return await answer.end()


async def _whole(
    request: web.Request, upstream: SynthesizeStreamRequest, encode: AudioEncoder, content_type: str
) -> web.Response:
    """Answer with the whole audio, and with the times of its words in a header."""
    data, words, ending = bytearray(), [], dict[str, Any]()
    async with aclosing(spoken(request, upstream)) as messages:
        async for message in messages:
            if message.HasField("audio"):
                data += await encode.encode(message.audio.data)
            elif message.HasField("marks"):
                words += word_times(message.marks.marks)
            elif message.HasField("done"):
                ending = told_at_end(message.done, request[CALL])
    data += await encode.finish()
    times = json.dumps(words)
    fits = len(times) <= MAX_TIMESTAMPS_BYTES
    name, value = (
        ("X-Word-Timestamps", times) if fits else ("X-Word-Timestamps-Omitted", f"limit={MAX_TIMESTAMPS_BYTES}")
    )
    headers = {"Content-Type": content_type, name: value, **as_headers(ending)}
    return web.Response(body=bytes(data), headers=headers)


def word_times(marks: Iterable[Mark]) -> list[dict[str, Any]]:
    return [{"word": mark.text, "start_ms": mark.start_ms, "end_ms": mark.end_ms} for mark in marks]


def _delta(data: bytes) -> bytes:
    return b"data: %b\n\n" % with_audio(_DELTA_HEAD, data)


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json_text(payload)


def usage(stats: SynthesisStats) -> dict[str, int]:
    """OpenAI's usage: characters as input tokens, codec frames as output tokens."""
    return {
        "input_tokens": stats.input_chars,
        "output_tokens": stats.codec_frames,
        "total_tokens": stats.input_chars + stats.codec_frames,
    }
