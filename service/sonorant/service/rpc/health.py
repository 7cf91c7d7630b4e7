"""The gRPC health service: it gives the latest status to clients that ask or watch.

The stock servicer writes to its watchers under a lock, so a single one that does not read blocks all others, and the
server's shutdown. Here, setting a status waits for nobody, and each watcher is woken by its own event.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from sonorant.service.calls.context import on_call_end
from sonorant.service.errors import LimitReached, ServiceUnknown

LIVENESS = "liveness"  # health name that is SERVING as long as the process works, also while it drains
# Watching needs no key, so the number of watchers is bounded.
MAX_WATCHERS = 1000
MAX_WATCHERS_PER_HOST = 100

_STATUS = health_pb2.HealthCheckResponse


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    def __init__(self) -> None:
        self._statuses: dict[str, int] = {}
        self._watchers: set[asyncio.Event] = set()
        self._of_host: Counter[str] = Counter()

    def set_serving(self, serving: Mapping[str, bool]) -> None:
        """Set statuses by name; names that are not mentioned keep theirs."""
        for name, serves in serving.items():
            self._statuses[name] = _STATUS.SERVING if serves else _STATUS.NOT_SERVING
        for changed in self._watchers:
            changed.set()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> health_pb2.HealthCheckResponse:
        status = self._statuses.get(request.service)
        if status is None:
            raise ServiceUnknown("health knows no service of this name; leave it empty to ask about the whole server")
        return _STATUS(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        changed = self._enter(context.peer().rpartition(":")[0])
        sent = None
        while True:
            changed.clear()
            status = self._statuses.get(request.service, _STATUS.SERVICE_UNKNOWN)
            if status != sent:
                yield _STATUS(status=status)
                sent = status
            else:
                await changed.wait()

    def _enter(self, host: str) -> asyncio.Event:
        if len(self._watchers) >= MAX_WATCHERS or self._of_host[host] >= MAX_WATCHERS_PER_HOST:
            raise LimitReached("watchers", "too many clients watch health already; use Check, or share one watch")
        changed = asyncio.Event()
        self._watchers.add(changed)
        self._of_host[host] += 1

        def leave(_call: object) -> None:
            self._watchers.discard(changed)
            self._of_host[host] -= 1
            self._of_host += Counter()  # forget hosts with none left

        on_call_end(leave)
        return changed
