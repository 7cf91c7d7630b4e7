"""/openapi.json, a description of all HTTP paths, made from the models that parse the requests; /docs shows it."""

from functools import lru_cache
from typing import Any

from aiohttp import web
from pydantic.json_schema import models_json_schema

from sonorant.client import __version__
from sonorant.gateway.cartesia.request import Generation, Message
from sonorant.gateway.encoders import FORMATS
from sonorant.gateway.openai.batch import BatchRequest
from sonorant.gateway.openai.dictionaries import DictionaryBody
from sonorant.gateway.openai.request import SpeechRequest
from sonorant.gateway.openai.stream_request import StreamConfig

_REF = "#/components/schemas/{model}"
_ERRORS = {
    "400": "A field is wrong; `param` names it.",
    "401": "The API key is missing or unknown.",
    "403": "The API key may not use this voice, or the page may not call.",
    "404": "No such model, voice or dictionary.",
    "413": "Too large.",
    "415": "The body is compressed.",
    "421": "The gateway does not know the name by which it was called; see `--allowed-host`.",
    "429": "The server is full, or a limit is reached; `Retry-After` says when to retry.",
    "503": "No server is ready; try again.",
}
_AUDIO: dict[str, Any] = {audio.content_type: {} for audio in FORMATS.values()} | {"text/event-stream": {}}
_VOICE_FORM = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "description": "The name of the voice; its id is derived from it."},
        "audio_sample": {"type": "string", "format": "binary", "description": "A recording of its speaker."},
        "consent": {"type": "string", "description": "Who agreed to the cloning, and how; required for recordings."},
        "ref_text": {"type": "string", "description": "What is said in the recording."},
        "speaker_description": {"type": "string"},
        "preview_text": {"type": "string", "description": "What is said to try the voice."},
        "speaker_embedding": {"type": "string", "description": "A JSON list of numbers, instead of a recording."},
        "prompt": {"type": "string", "description": "A description, instead of a recording (VoiceDesign)."},
    },
}


@lru_cache(1)
def document() -> dict[str, Any]:
    models = (SpeechRequest, BatchRequest, StreamConfig, Generation, Message, DictionaryBody)
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sonorant gateway", "version": __version__, "description": "See docs/gateway.md."},
        "security": [{"bearer": []}, {"apiKey": []}, {}],
        "paths": _paths(),
        "components": {
            "schemas": schemas["$defs"] | {"Error": _error_schema(), "VoiceForm": _VOICE_FORM},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


async def openapi(request: web.Request) -> web.Response:
    return web.json_response(document())


def _paths() -> dict[str, Any]:
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "/v1/audio/speech": {
            "post": _operation("Speak a text", "The audio, as it is generated.", _AUDIO, body=SpeechRequest)
        },
        "/v1/audio/speech/batch": {
            "post": _operation("Speak several texts", "All of the audio, in base64.", body=BatchRequest)
        },
        "/v1/audio/speech/stream": {
            "get": _operation("WebSocket: text in while audio comes out", "The first message is a StreamConfig.", {})
        },
        "/v1/audio/voices": {
            "get": _operation("List voices", "Names and objects."),
            "post": _operation("Create a voice", "The voice.", form=True),
        },
        "/v1/audio/voices/{name}": {
            "get": {**_operation("One voice", "The voice."), "parameters": [name]},
            "delete": {**_operation("Delete a voice", "The voice is deleted."), "parameters": [name]},
        },
        "/v1/audio/dictionaries": {
            "get": _operation("List pronunciation dictionaries", "Each in its newest version, without its phrases."),
            "post": _operation(
                "Make a pronunciation dictionary, or its next version", "The version.", body=DictionaryBody
            ),
        },
        "/v1/audio/dictionaries/{name}": {
            "get": {
                **_operation("One dictionary with its phrases", "The newest version, or ?version=N."),
                "parameters": [name],
            },
            "delete": {
                **_operation("Delete a dictionary with all its versions", "It is deleted."),
                "parameters": [name],
            },
        },
        "/v1/audio/usage": {"get": _operation("What the API key has used and has left", "Counts and limits.")},
        "/v1/models": {"get": _operation("List models", "Names.")},
        "/v1/models/{name}": {"get": {**_operation("One model", "The model."), "parameters": [name]}},
        "/open-webui/audio/speech": {
            "post": _operation("Speak a text, for Open WebUI", "The audio.", _AUDIO, body=SpeechRequest)
        },
        "/open-webui/audio/voices": {"get": _operation("List voices, for Open WebUI", "Objects.")},
        "/open-webui/audio/models": {"get": _operation("List models, for Open WebUI", "Objects.")},
        "/tts/websocket": {"get": _operation("WebSocket of Cartesia's clients", "Each message is a Message.", {})},
        "/tts/bytes": {
            "post": _operation("Speak a text, for Cartesia's clients", "The audio.", _AUDIO, body=Generation)
        },
        "/tts/sse": {
            "post": _operation(
                "Speak a text, for Cartesia's clients", "Events.", {"text/event-stream": {}}, body=Message
            )
        },
        "/health": {"get": _operation("Whether the process is alive", "It is.")},
        "/ready": {"get": _operation("Whether to send calls here", "Yes; 503 = no.")},
        "/metrics": {"get": _operation("Metrics for Prometheus", "Metrics.", {"text/plain": {}})},
    }


def _operation(
    summary: str, success: str, content: dict[str, Any] | None = None, *, body: type | None = None, form: bool = False
) -> dict[str, Any]:
    failures = {status: {"description": text, **_content("Error")} for status, text in _ERRORS.items()}
    content = {"application/json": {}} if content is None else content
    answer = {"description": success, **({"content": content} if content else {})}
    operation: dict[str, Any] = {"summary": summary, "responses": {"200": answer, **failures}}
    if body is not None:
        operation["requestBody"] = {"required": True, **_content(body.__name__)}
    if form:
        operation["requestBody"] = {"required": True, **_content("VoiceForm", "multipart/form-data")}
    return operation


def _content(model: str, kind: str = "application/json") -> dict[str, Any]:
    return {"content": {kind: {"schema": {"$ref": _REF.format(model=model)}}}}


def _error_schema() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    error = {"type": "object", "properties": {"message": {"type": "string"}, "type": text, "param": text, "code": text}}
    return {"type": "object", "properties": {"error": error}}
