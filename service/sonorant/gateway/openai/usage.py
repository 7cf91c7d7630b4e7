"""/v1/audio/usage: what the caller's API key has used, and what is left of its limits. An endpoint of our own."""

from aiohttp import web

from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.web.context import CALL, SERVERS
from sonorant.tts.v1.text_to_speech_service_pb2 import GetUsageRequest


async def usage(request: web.Request) -> web.Response:
    call: UpstreamCall = request[CALL]
    told = await request.app[SERVERS].unary(lambda server: server.speech.GetUsage, GetUsageRequest(), call)
    has_limit = told.HasField("max_text_chars_per_minute")
    return web.json_response(
        {
            "object": "audio.usage",
            "key": told.key,
            "characters": told.usage.input_chars,
            "audio_seconds": told.usage.audio_ms / 1000,
            "clones": told.usage.clones,
            "since": told.since.seconds,
            "max_characters_per_minute": told.max_text_chars_per_minute if has_limit else None,
            "characters_left": told.text_chars_left if has_limit else None,
            "max_sessions": told.max_sessions,
            "active_sessions": told.active_sessions,
        }
    )
