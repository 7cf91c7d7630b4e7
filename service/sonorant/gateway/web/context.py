"""Typed keys for the values that handlers find in their application and their request."""

from aiohttp import web

from sonorant.gateway.errors import Refusal
from sonorant.gateway.metrics import GatewayMetrics
from sonorant.gateway.settings import GatewayConfig
from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.upstream.catalog import Catalogs
from sonorant.gateway.upstream.keys import Keys
from sonorant.gateway.upstream.servers import Servers
from sonorant.gateway.web.connections import OpenConnections
from sonorant.gateway.web.hosts import Hosts
from sonorant.gateway.web.large_bodies import LargeBodies

CONFIG = web.AppKey("config", GatewayConfig)
HOSTS = web.AppKey("hosts", Hosts)
SERVERS = web.AppKey("servers", Servers)
CATALOGS = web.AppKey("catalogs", Catalogs)
KEYS = web.AppKey("keys", Keys)
CONNECTIONS = web.AppKey("connections", OpenConnections)
LARGE_BODIES = web.AppKey("large_bodies", LargeBodies)
METRICS = web.AppKey("metrics", GatewayMetrics)

CALL = web.RequestKey("call", UpstreamCall)
MISSPELT = web.RequestKey("misspelt", str)  # fields that nobody knows, with the nearest known ones
DOOR = web.RequestKey("door", str)  # the protocol of the request, for metrics
REFUSAL = web.RequestKey("refusal", Refusal)  # set if it was refused
