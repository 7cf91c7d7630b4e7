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
    paths: dict[str, dict[str, Any]] = {}
    for where, operation in _operations().items():
        method, path = where.split()
        if "{name}" in path:
            operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
        paths.setdefault(path, {})[method] = operation
    return paths


def _operations() -> dict[str, dict[str, Any]]:
    ours, webui = "/v1/audio", "/open-webui/audio"
    events: dict[str, Any] = {"text/event-stream": {}}
    newest, next_version = "Each in its newest version, without its phrases.", "Make a dictionary, or its next version"
    return {
        f"post {ours}/speech": _operation("Speak a text", "The audio, as it is generated.", _AUDIO, body=SpeechRequest),
        f"post {ours}/speech/batch": _operation("Speak several texts", "Their audio, in base64.", body=BatchRequest),
        f"get {ours}/speech/stream": _operation("WebSocket: text in, audio out", "First comes a StreamConfig.", {}),
        f"get {ours}/voices": _operation("List voices", "Names and objects."),
        f"post {ours}/voices": _operation("Create a voice", "The voice.", form=True),
        f"get {ours}/voices/{{name}}": _operation("One voice", "The voice."),
        f"delete {ours}/voices/{{name}}": _operation("Delete a voice", "The voice is deleted."),
        f"get {ours}/dictionaries": _operation("List pronunciation dictionaries", newest),
        f"post {ours}/dictionaries": _operation(next_version, "The version.", body=DictionaryBody),
        f"get {ours}/dictionaries/{{name}}": _operation("A dictionary's phrases", "The newest version, or ?version=N."),
        f"delete {ours}/dictionaries/{{name}}": _operation("Delete all versions of a dictionary", "It is deleted."),
        f"get {ours}/usage": _operation("What the API key has used and has left", "Counts and limits."),
        "get /v1/models": _operation("List models", "Names."),
        "get /v1/models/{name}": _operation("One model", "The model."),
        f"post {webui}/speech": _operation("Speak a text, for Open WebUI", "The audio.", _AUDIO, body=SpeechRequest),
        f"get {webui}/voices": _operation("List voices, for Open WebUI", "Objects."),
        f"get {webui}/models": _operation("List models, for Open WebUI", "Objects."),
        "get /tts/websocket": _operation("WebSocket of Cartesia's clients", "Each message is a Message.", {}),
        "post /tts/bytes": _operation("Speak a text, for Cartesia's clients", "The audio.", _AUDIO, body=Generation),
        "post /tts/sse": _operation("Speak a text, for Cartesia's clients", "Events.", events, body=Message),
        "get /health": _operation("Whether the process is alive", "It is."),
        "get /ready": _operation("Whether to send calls here", "Yes; 503 = no."),
        "get /metrics": _operation("Metrics for Prometheus", "Metrics.", {"text/plain": {}}),
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
