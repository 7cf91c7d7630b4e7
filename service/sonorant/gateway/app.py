"""The HTTP application: which handler serves which path."""

import asyncio

from aiohttp import web

from sonorant.gateway.cartesia.clip import tts_bytes
from sonorant.gateway.cartesia.events import tts_sse
from sonorant.gateway.cartesia.socket import tts_websocket
from sonorant.gateway.metrics import GatewayMetrics
from sonorant.gateway.openai.batch import speech_batch
from sonorant.gateway.openai.dictionaries import (
    delete_dictionary,
    get_dictionary,
    list_dictionaries,
    put_dictionary,
)
from sonorant.gateway.openai.models import model, models, open_webui_models, root
from sonorant.gateway.openai.speech import speech
from sonorant.gateway.openai.stream import speech_stream
from sonorant.gateway.openai.usage import usage
from sonorant.gateway.openai.voices import create_voice, delete_voice, get_voice, list_voices, open_webui_voices
from sonorant.gateway.openapi import openapi
from sonorant.gateway.settings import GatewayConfig
from sonorant.gateway.static_page import docs, page
from sonorant.gateway.upstream.catalog import Catalogs
from sonorant.gateway.upstream.keys import Keys
from sonorant.gateway.upstream.servers import Servers
from sonorant.gateway.web.connections import OpenConnections, most_connections
from sonorant.gateway.web.context import CATALOGS, CONFIG, CONNECTIONS, HOSTS, KEYS, LARGE_BODIES, METRICS, SERVERS
from sonorant.gateway.web.drain import CONVERSATIONS, DRAINING, Conversations, end_conversations
from sonorant.gateway.web.edge import add_headers, edge
from sonorant.gateway.web.health import health, metrics, ready
from sonorant.gateway.web.hosts import Hosts
from sonorant.gateway.web.large_bodies import LargeBodies


def make_app(config: GatewayConfig, servers: Servers, counts: GatewayMetrics) -> web.Application:
    app = web.Application(middlewares=[edge])
    app[CONFIG] = config
    app[HOSTS] = Hosts(config.listen, config.allowed_hosts)
    app[SERVERS] = servers
    app[CATALOGS] = Catalogs(servers)
    app[KEYS] = Keys(servers)
    app[METRICS] = counts
    app[CONNECTIONS] = OpenConnections(most_connections(config.max_connections))
    app[LARGE_BODIES] = LargeBodies()
    app[DRAINING] = asyncio.Event()
    app[CONVERSATIONS] = Conversations()
    app.on_shutdown.append(end_conversations)
    app.on_response_prepare.append(add_headers)
    app.router.add_routes(
        [
            web.get("/health", health),
            web.get("/ready", ready),
            web.get("/metrics", metrics),
            web.get("/v1/", root),
            web.get("/v1/models", models),
            web.get(r"/v1/models/{name:.+}", model),
            web.post("/v1/audio/speech", speech),
            web.post("/v1/audio/speech/batch", speech_batch),
            web.get("/v1/audio/speech/stream", speech_stream),
            web.get("/v1/audio/voices", list_voices),
            web.post("/v1/audio/voices", create_voice),
            web.get("/v1/audio/voices/{name}", get_voice),
            web.delete("/v1/audio/voices/{name}", delete_voice),
            web.get("/v1/audio/dictionaries", list_dictionaries),
            web.post("/v1/audio/dictionaries", put_dictionary),
            web.get("/v1/audio/dictionaries/{name}", get_dictionary),
            web.delete("/v1/audio/dictionaries/{name}", delete_dictionary),
            web.get("/v1/audio/usage", usage),
            web.get("/tts/websocket", tts_websocket),
            web.post("/tts/bytes", tts_bytes),
            web.post("/tts/sse", tts_sse),
            web.get("/openapi.json", openapi),
            web.get("/docs", docs),
            web.get("/", page),
            web.get(r"/{file:[a-z-]+\.[a-z]+}", page),
            # Open WebUI, whose base URL is then http://HOST:PORT/open-webui
            web.post("/open-webui/audio/speech", speech),
            web.get("/open-webui/audio/voices", open_webui_voices),
            web.get("/open-webui/audio/models", open_webui_models),
        ]
    )
    return app
