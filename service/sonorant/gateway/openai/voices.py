"""/v1/audio/voices: lists, creates and deletes voices, with the fields of OpenAI and vLLM-Omni.

The answers of the two differ, so each object has the fields of both.
"""

from typing import Any

from aiohttp import web

from sonorant.gateway.errors import Refusal
from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.upstream.voices import DEFAULT_VOICE, OPENAI_VOICES, resolve_voice, voice_id
from sonorant.gateway.web.context import CALL, SERVERS
from sonorant.gateway.web.forms import read_form
from sonorant.gateway.web.json_input import MAX_EMBEDDING, decode
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
FIELDS = frozenset(
    ("name", "consent", "ref_text", "speaker_description", "speaker_embedding", "prompt", "preview_text")
)
# OpenAI's names for the kinds that it has.
_TYPES = {VOICE_KIND_CLONED: "audio_sample", VOICE_KIND_DESIGNED: "prompt"}


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
    form = await read_form(request, FIELDS, "audio_sample", MAX_SAMPLE_BYTES)
    name = voice_id(form.text("name"))
    if not name:
        raise Refusal(400, "name: a name with a letter or a digit is needed", param="name")
    if name in (*OPENAI_VOICES, DEFAULT_VOICE):
        raise Refusal(400, f"name: {name!r} stands for one of the server's own voices; choose another", param="name")
    create = CreateVoiceRequest(
        voice_id=name,
        voice=Voice(
            display_name=form.text("name")[:256],
            description=form.text("speaker_description"),
            preview_text=form.text("preview_text"),
        ),
        consent=form.text("consent"),
    )
    embedding, design = form.text("speaker_embedding"), form.text("prompt")
    if sum(map(bool, (form.file, embedding, design))) != 1:
        message = "audio_sample, speaker_embedding, prompt: send exactly one of them"
        raise Refusal(400, message, param="audio_sample")
    if form.file:
        create.reference.CopyFrom(ReferenceAudio(audio=form.file, transcript=form.text("ref_text")))
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
    call: UpstreamCall = request[CALL]
    return await request.app[SERVERS].unary(lambda server: getattr(server.voices, method), message, call)


def _embedding(text: str) -> SpeakerEmbedding:
    values = decode(text)
    try:
        if not isinstance(values, list) or len(values) > MAX_EMBEDDING:
            raise ValueError
        return SpeakerEmbedding(values=values)
    except (ValueError, TypeError):
        message = f"speaker_embedding: a JSON list of at most {MAX_EMBEDDING} numbers is needed"
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
        "preview_text": voice.preview_text,
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
