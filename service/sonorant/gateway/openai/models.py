"""GET /v1/models: the checkpoints, and the model names that OpenAI's clients send."""

from typing import Any

from aiohttp import web

from sonorant.gateway.errors import Refusal
from sonorant.gateway.web.context import CALL, CATALOGS


async def models(request: web.Request) -> web.Response:
    catalog = await request.app[CATALOGS].read(request[CALL])
    return web.json_response({"object": "list", "data": [_model(name) for name in catalog.models]})


async def open_webui_models(request: web.Request) -> web.Response:
    """List the models for Open WebUI, which expects them in `models`, and others that send its path in `data`."""
    catalog = await request.app[CATALOGS].read(request[CALL])
    listed = [_model(name) for name in catalog.models]
    return web.json_response({"object": "list", "models": listed, "data": listed})


async def model(request: web.Request) -> web.Response:
    catalog = await request.app[CATALOGS].read(request[CALL])
    name = request.match_info["name"]
    if not catalog.has_model(name):
        raise Refusal(
            404, f"there is no model {name[:80]!r}; GET /v1/models lists them", param="model", code="model_not_found"
        )
    return web.json_response(_model(name))


async def root(request: web.Request) -> web.Response:
    """LiveKit's OpenAI plugin requests this path to open a connection in advance."""
    return web.json_response({"object": "list", "data": []})


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "sonorant"}
