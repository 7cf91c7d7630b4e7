"""POST /v1/audio/speech/batch: several texts in one request, as in vLLM-Omni. If one fails, the others go on."""

import asyncio
import base64
import secrets
from contextlib import aclosing
from typing import Any

from aiohttp import web
from pydantic import Field

from sonorant.gateway.clip import spoken
from sonorant.gateway.encoders import FORMATS, encoder
from sonorant.gateway.errors import Refusal
from sonorant.gateway.openai.data_uris import DecodedUris
from sonorant.gateway.openai.request import ResponseFormat, SpeechRequest, VoiceFields
from sonorant.gateway.openai.speech import check_format, usage
from sonorant.gateway.web.bodies import read_json
from sonorant.gateway.web.context import CALL, CATALOGS, CONFIG, MISSPELT
from sonorant.gateway.web.json_input import misspelt, parse
from sonorant.tts.v1.synthesis_pb2 import SynthesisStats
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest

MAX_ITEMS = 32  # as in vLLM-Omni
MAX_AT_ONCE = 4
MAX_AUDIO_BYTES = 32 * 1024 * 1024  # for all items together, because they are in one answer
MAX_SENT_BYTES = 32 * 1024 * 1024  # to the server: a recording beside `items` goes there with each of them
_WHO_SPEAKS = {"voice", "speaker"}  # two names of one field
_KNOWN = SpeechRequest.model_fields.keys() | _WHO_SPEAKS


class BatchRequest(VoiceFields):
    """POST /v1/audio/speech/batch. Fields beside `items` are defaults for every item."""

    items: list[dict[str, Any]] = Field(
        min_length=1, max_length=MAX_ITEMS, description="Each has an `input` and may have any field of SpeechRequest."
    )
    response_format: ResponseFormat = "wav"


async def speech_batch(request: web.Request) -> web.Response:
    data = await read_json(request)
    request[MISSPELT] = misspelt(BatchRequest, data)
    batch = parse(BatchRequest, data)
    shared = {name: value for name, value in data.items() if name in _KNOWN}
    shared["response_format"] = batch.response_format
    answers = _Answers(request)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(answers.of(index, merged(shared, item))) for index, item in enumerate(batch.items)]
    results = [task.result() for task in tasks]
    num_spoken = sum(result["status"] == "success" for result in results)
    told = {"total": len(results), "succeeded": num_spoken, "failed": len(results) - num_spoken}
    return web.json_response({"id": f"speech-batch-{secrets.token_hex(8)}", "results": results, **told})


def merged(shared: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """An item with the shared defaults filled in. Pure."""
    own = {name: value for name, value in item.items() if value is not None and name in _KNOWN}
    hidden = _WHO_SPEAKS if own.keys() & _WHO_SPEAKS else set()
    return {**{name: value for name, value in shared.items() if name not in hidden}, **own}


class _Answers:
    """Answers the items of one request."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._places = asyncio.Semaphore(MAX_AT_ONCE)
        self._recordings = DecodedUris()
        self._num_bytes = 0  # of audio
        self._num_sent = 0  # bytes of requests to the server

    async def of(self, index: int, fields: dict[str, Any]) -> dict[str, Any]:
        try:
            async with self._places:
                return {"index": index, "status": "success", **await self._spoken(parse(SpeechRequest, fields))}
        except Refusal as refusal:
            return {"index": index, "status": "error", "error": refusal.message}

    async def _spoken(self, body: SpeechRequest) -> dict[str, Any]:
        assert body.response_format is not None
        check_format(body, body.response_format)
        if self._num_sent > MAX_SENT_BYTES:
            message = f"ref_audio: more than {MAX_SENT_BYTES} bytes in one batch; keep the recording as a voice"
            raise Refusal(413, message, param="ref_audio")
        app, call = self._request.app, self._request[CALL]
        catalog, text_format = await app[CATALOGS].get(call), app[CONFIG].text_format
        config = await body.to_config(catalog, "pcm_s16le", text_format, self._recordings.read)
        upstream = SynthesizeStreamRequest(config=config, text=body.input)
        self._num_sent += upstream.ByteSize()
        encode = encoder(body.response_format, body.rate_hz, whole=True)
        stats = SynthesisStats(input_chars=len(body.input))
        audio = bytearray()
        async with aclosing(spoken(self._request, upstream)) as messages:
            async for message in messages:
                if message.HasField("audio"):
                    self._num_bytes += len(message.audio.data)
                    if self._num_bytes > MAX_AUDIO_BYTES:
                        raise Refusal(413, f"more than {MAX_AUDIO_BYTES} bytes of audio in one batch; send fewer items")
                    audio += await encode.encode(message.audio.data)
                elif message.HasField("done"):
                    stats = message.done.stats
        audio += await encode.finish()
        return {
            "audio_data": base64.b64encode(audio).decode(),
            "media_type": FORMATS[body.response_format].content_type,
            "usage": usage(stats),
        }
