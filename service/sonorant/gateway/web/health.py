"""/health, /ready and /metrics: whether the process is alive, whether to send it calls, and its metrics."""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from sonorant.gateway.web.context import METRICS, SERVERS
from sonorant.gateway.web.drain import DRAINING


async def health(request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    draining = request.app[DRAINING].is_set()
    serves = request.app[SERVERS].serving and not draining
    serving: dict[str, bool] = {}
    for server in request.app[SERVERS].all:  # a target may have several connections
        serving[server.target] = serving.get(server.target, False) or server.serving
    servers = [{"target": target, "serving": each} for target, each in serving.items()]
    return web.json_response({"ready": serves, "draining": draining, "servers": servers}, status=200 if serves else 503)


async def metrics(request: web.Request) -> web.Response:
    return web.Response(body=request.app[METRICS].exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})
