"""Typed keys for the values that handlers find in their application and their request."""

from aiohttp import web

from sonorant.gateway.calls import Call
from sonorant.gateway.catalog import Catalogs
from sonorant.gateway.connections import Connections
from sonorant.gateway.hosts import Hosts
from sonorant.gateway.keys import Keys
from sonorant.gateway.large_bodies import LargeBodies
from sonorant.gateway.metrics import Metrics
from sonorant.gateway.servers import Servers
from sonorant.gateway.settings import GatewayConfig

CONFIG = web.AppKey("config", GatewayConfig)
HOSTS = web.AppKey("hosts", Hosts)
SERVERS = web.AppKey("servers", Servers)
CATALOGS = web.AppKey("catalogs", Catalogs)
KEYS = web.AppKey("keys", Keys)
CONNECTIONS = web.AppKey("connections", Connections)
LARGE_BODIES = web.AppKey("large_bodies", LargeBodies)
METRICS = web.AppKey("metrics", Metrics)

CALL = web.RequestKey("call", Call)
DOOR = web.RequestKey("door", str)  # the protocol of the request, for metrics
