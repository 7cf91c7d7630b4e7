"""/v1/audio/voices: lists, creates and deletes voices, with the fields of OpenAI and vLLM-Omni.

The answers of the two differ, so each object has the fields of both.
"""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from sonorant.gateway.calls import Call
from sonorant.gateway.context import CALL, LARGE_BODIES, SERVERS
from sonorant.gateway.errors import Refusal
from sonorant.gateway.http import LargeBodies, arriving, read_body
from sonorant.gateway.voices import OPENAI_VOICES, resolve_voice, voice_id
from sonorant.tts.v1.voice_pb2 import (
    VOICE_KIND_CLONED,
    VOICE_KIND_DESIGNED,
    VOICE_KIND_PRESET,
    ReferenceAudio,
    SpeakerEmbedding,
    Voice,
    VoiceKind,
)
from sonorant.tts.v1.voice_service_pb2 import (
    CreateVoiceRequest,
    DeleteVoiceRequest,
    GetVoiceRequest,
    ListVoicesRequest,
)

MAX_SAMPLE_BYTES = 8 * 1024 * 1024 - 64 * 1024  # the limit of a message to the server, less room for other fields
MAX_FIELD_BYTES = 256 * 1024  # an embedding of 2,048 numbers, with all their digits
FIELDS = ("name", "consent", "ref_text", "speaker_description", "speaker_embedding", "prompt")
# OpenAI's names for the kinds that it has.
_TYPES = {VOICE_KIND_CLONED: "audio_sample", VOICE_KIND_DESIGNED: "prompt"}


@dataclass(slots=True)
class _Form:
    sample: bytes = b""
    fields: dict[str, str] | None = None

    def text(self, name: str) -> str:
        return (self.fields or {}).get(name, "")


async def list_voices(request: web.Request) -> web.Response:
    """List all voices: `voices` has names, as in vLLM-Omni; `data` has objects, as in OpenAI's lists."""
    voices = await all_voices(request)
    made = [voice for voice in voices if voice.kind != VOICE_KIND_PRESET]
    return web.json_response(
        {
            "object": "list",
            "data": [_described(voice) for voice in voices],
            "voices": [voice.voice_id for voice in voices],
            "uploaded_voices": [_uploaded(voice) for voice in made],
        }
    )


async def open_webui_voices(request: web.Request) -> web.Response:
    """List all voices for Open WebUI, which expects objects in `voices`."""
    voices = await all_voices(request)
    listed = [{"id": voice.voice_id, "name": voice.display_name or voice.voice_id} for voice in voices]
    return web.json_response({"voices": listed})


async def get_voice(request: web.Request) -> web.Response:
    voice = await _unary(request, "GetVoice", GetVoiceRequest(voice_id=resolve_voice(request.match_info["name"])))
    return web.json_response(_described(voice.voice))


async def create_voice(request: web.Request) -> web.Response:
    form = await _read(request, request.app[LARGE_BODIES])
    name = voice_id(form.text("name"))
    if not name:
        raise Refusal(400, "name: a name with a letter or a digit is needed", param="name")
    if name in OPENAI_VOICES:
        raise Refusal(
            400, f"name: {name!r} is a voice of OpenAI's, which stands for a preset; choose another", param="name"
        )
    create = CreateVoiceRequest(
        voice_id=name,
        voice=Voice(display_name=form.text("name")[:256], description=form.text("speaker_description")),
        consent=form.text("consent"),
    )
    embedding, design = form.text("speaker_embedding"), form.text("prompt")
    if sum(map(bool, (form.sample, embedding, design))) != 1:
        message = "audio_sample, speaker_embedding, prompt: send exactly one of them"
        raise Refusal(400, message, param="audio_sample")
    if form.sample:
        create.reference.CopyFrom(ReferenceAudio(audio=form.sample, transcript=form.text("ref_text")))
    elif embedding:
        create.speaker_embedding.CopyFrom(_embedding(embedding))
    else:
        create.design = design
    voice: Voice = (await _unary(request, "CreateVoice", create)).voice
    described = _described(voice)
    return web.json_response({**described, "success": True, "voice": {**_uploaded(voice), "name": voice.voice_id}})


async def delete_voice(request: web.Request) -> web.Response:
    name = resolve_voice(request.match_info["name"])
    await _unary(request, "DeleteVoice", DeleteVoiceRequest(voice_id=name))
    return web.json_response(
        {"id": name, "object": "audio.voice", "deleted": True, "success": True, "message": f"Voice '{name}' deleted"}
    )


async def all_voices(request: web.Request) -> list[Voice]:
    voices: list[Voice] = []
    page = ListVoicesRequest(page_size=1000)
    while True:
        answer = await _unary(request, "ListVoices", page)
        voices.extend(answer.voices)
        if not answer.next_page_token:
            return voices
        page.page_token = answer.next_page_token


async def _unary(request: web.Request, method: str, message: Any) -> Any:
    call: Call = request[CALL]
    return await request.app[SERVERS].unary(lambda server: getattr(server.voices, method), message, call)


async def _read(request: web.Request, large: LargeBodies) -> _Form:
    """Read a form. Raises Refusal."""
    try:
        if request.content_type == "application/x-www-form-urlencoded":
            text = (await read_body(request, large)).decode()
            return _Form(fields=dict(parse_qsl(text, max_num_fields=100)))
        if request.content_type.startswith("multipart/"):
            with large.place():
                return await _read_parts(request)
    except UnicodeDecodeError:
        raise Refusal(400, "a field of the form is not UTF-8") from None
    except (ValueError, AssertionError, HttpProcessingError) as error:
        raise Refusal(400, f"what was sent is not a form: {error}") from None
    raise Refusal(400, f"send a form with {', '.join(FIELDS)}, and the file audio_sample")


async def _read_parts(request: web.Request) -> _Form:
    form = _Form(fields={})
    async with arriving():
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                raise Refusal(400, "a form within a form is not supported")
            if part.name == "audio_sample":
                form.sample = await _part(part, MAX_SAMPLE_BYTES)
            elif part.name in FIELDS and form.fields is not None:
                form.fields[part.name] = (await _part(part, MAX_FIELD_BYTES)).decode()
            else:
                await part.release()
    return form


async def _part(part: BodyPartReader, limit: int) -> bytes:
    data = bytearray()
    while piece := await part.read_chunk(64 * 1024):
        data += piece
        if len(data) > limit:
            raise Refusal(413, f"{part.name}: more than {limit} bytes; send less", param=part.name)
    return bytes(data)


def _embedding(text: str) -> SpeakerEmbedding:
    try:
        return SpeakerEmbedding(values=json.loads(text))
    except (ValueError, TypeError, RecursionError):
        message = "speaker_embedding: a JSON list of numbers is needed"
        raise Refusal(400, message, param="speaker_embedding") from None


def _described(voice: Voice) -> dict[str, Any]:
    """A voice as OpenAI's `audio.voice`, with Sonorant's own fields."""
    kind = VoiceKind.Name(voice.kind).removeprefix("VOICE_KIND_").lower()
    return {
        "id": voice.voice_id,
        "object": "audio.voice",
        "type": _TYPES.get(voice.kind, kind),
        "name": voice.display_name or voice.voice_id,
        "created_at": voice.create_time.seconds,
        "kind": kind,
        "prompt": voice.design or None,
        "description": voice.description,
        "languages": list(voice.languages),
        "model": voice.model,
    }


def _uploaded(voice: Voice) -> dict[str, Any]:
    uploaded: dict[str, Any] = {
        "name": voice.voice_id,
        "consent": voice.consent,
        "created_at": voice.create_time.seconds,
        "reference_audio_ms": voice.reference_audio_ms,
    }
    if voice.transcript:
        uploaded["ref_text"] = voice.transcript
    if voice.description:
        uploaded["speaker_description"] = voice.description
    return uploaded
