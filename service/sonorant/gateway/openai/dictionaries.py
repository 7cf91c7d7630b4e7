"""/v1/audio/dictionaries: makes, lists, shows and deletes pronunciation dictionaries. Endpoints of our own."""

from typing import Annotated, Any

from aiohttp import web
from pydantic import BaseModel, Field

from sonorant.gateway.errors import Refusal
from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.web.bodies import read_model
from sonorant.gateway.web.context import CALL, SERVERS
from sonorant.gateway.web.json_input import MAX_NAME_CHARS, MAX_UINT32
from sonorant.tts.v1.dictionary_pb2 import Dictionary
from sonorant.tts.v1.dictionary_service_pb2 import (
    DeleteDictionaryRequest,
    GetDictionaryRequest,
    ListDictionariesRequest,
    PutDictionaryRequest,
)


class DictionaryBody(BaseModel):
    """POST /v1/audio/dictionaries."""

    id: str = Field(max_length=MAX_NAME_CHARS, description="3 to 63 small letters, digits and hyphens.")
    pronunciations: Annotated[dict[str, str], Field(fail_fast=True)] = Field(
        description='All phrases of the new version, and what is said for them: {"SQL": "sequel"}.'
    )


async def list_dictionaries(request: web.Request) -> web.Response:
    answer = await _unary(request, "ListDictionaries", ListDictionariesRequest())
    return web.json_response({"object": "list", "data": [_described(each) for each in answer.dictionaries]})


async def put_dictionary(request: web.Request) -> web.Response:
    """Make a dictionary, or its next version."""
    body = await read_model(request, DictionaryBody)
    put = PutDictionaryRequest(dictionary_id=body.id, pronunciations=body.pronunciations)
    return web.json_response(_described((await _unary(request, "PutDictionary", put)).dictionary))


async def get_dictionary(request: web.Request) -> web.Response:
    version = request.query.get("version", "0")
    if not (version.isascii() and version.isdigit() and int(version[:11]) <= MAX_UINT32):
        raise Refusal(400, f"version: {version[:40]!r} is not the number of a version", param="version")
    wanted = GetDictionaryRequest(dictionary_id=request.match_info["name"], version=int(version))
    found = (await _unary(request, "GetDictionary", wanted)).dictionary
    versions = {"versions": list(found.versions)}
    return web.json_response({**_described(found), **versions, "pronunciations": dict(found.pronunciations)})


async def delete_dictionary(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    await _unary(request, "DeleteDictionary", DeleteDictionaryRequest(dictionary_id=name))
    return web.json_response({"id": name, "object": "audio.dictionary", "deleted": True})


async def _unary(request: web.Request, method: str, message: Any) -> Any:
    call: UpstreamCall = request[CALL]
    return await request.app[SERVERS].unary(lambda server: getattr(server.dictionaries, method), message, call)


def _described(dictionary: Dictionary) -> dict[str, Any]:
    return {
        "id": dictionary.dictionary_id,
        "object": "audio.dictionary",
        "version": dictionary.version,
        "num_phrases": dictionary.num_phrases,
        "created_at": dictionary.create_time.seconds,
    }
