"""One gateway process: listens, serves until it has to drain, and finishes the running calls."""

import asyncio
import logging
import socket
import ssl
from contextlib import AsyncExitStack

from aiohttp import web

from sonorant.client import Access
from sonorant.gateway.app import make_app
from sonorant.gateway.doorway import Doorway
from sonorant.gateway.metrics import GatewayMetrics
from sonorant.gateway.settings import GatewayConfig
from sonorant.gateway.upstream.servers import Servers
from sonorant.gateway.web.context import CATALOGS, CONNECTIONS, METRICS
from sonorant.gateway.wyoming.door import WyomingDoor
from sonorant.hosting.addresses import listening_socket
from sonorant.hosting.children import processes_of_cores
from sonorant.hosting.process import announce
from sonorant.hosting.tls import ServerContext, TlsFiles

log = logging.getLogger(__name__)

READ_BYTES = 32 * 1024  # of a body, that wait to be read; and one chunk for each 16 of them
LINGER_S = 2.0  # how long to wait for the rest of a body that nobody reads
CONNECTIONS_OF_PROCESS = 4
FIRST_LOOK_S = 1.0  # for a server, before the first caller is let in: beside this process others may have found theirs
KEEPALIVE_S = 75.0  # how long a connection may have no request, or one with incomplete headers


def connections_of(num_processes: int) -> int:
    """Return how many connections each of so many gateway processes has to a server: all together four for each process
    that a server on such a machine has, as Linux spreads them by chance."""
    wanted = processes_of_cores()
    return 1 if wanted == 1 else max(1, CONNECTIONS_OF_PROCESS * wanted // max(1, num_processes))


class Gateway:
    """Binds its ports when it is created, and serves in `run`."""

    def __init__(self, config: GatewayConfig) -> None:
        """Raises CannotListen or TlsError; OSError or ValueError if the TLS settings for the servers are wrong."""
        self._config = config
        shared = config.processes > 1  # all of them listen on the same ports
        self._access = Access.from_environment()
        self._access.check()
        self._certificates: ServerContext | None = None
        if config.tls_certificate and config.tls_key:
            self._certificates = ServerContext(TlsFiles(config.tls_certificate, config.tls_key))
        self._http = listening_socket(config.listen, "--listen", shared=shared)
        self.port: int = self._http.getsockname()[1]
        self._wyoming: socket.socket | None = None
        if config.wyoming_listen:
            self._wyoming = listening_socket(config.wyoming_listen, "--wyoming-listen", shared=shared)
        self.wyoming_port: int = self._wyoming.getsockname()[1] if self._wyoming else 0

    async def run(self, drain: asyncio.Event) -> None:
        """Serve until `drain` is set, then finish what is running."""
        config = self._config
        async with AsyncExitStack() as stack:
            context: ssl.SSLContext | None = None
            if self._certificates is not None:
                context = self._certificates.context
                following = asyncio.create_task(self._certificates.follow())
                stack.callback(following.cancel)
            num_connections = connections_of(config.processes)
            servers = await stack.enter_async_context(Servers(config.servers, self._access, num_connections))
            metrics = GatewayMetrics()
            if self._certificates is not None:
                self._certificates.on_read(metrics.certificate_expires_s.set)
            app = make_app(config, servers, metrics)
            runner = web.AppRunner(
                app,
                handler_cancellation=True,  # if the caller hangs up, the call ends
                access_log=None,
                auto_decompress=False,  # `bodies` refuses what is compressed; it is not unpacked even to be thrown away
                read_bufsize=READ_BYTES,
                keepalive_timeout=KEEPALIVE_S,
                lingering_time=LINGER_S,
                shutdown_timeout=config.drain_grace_s,
            )
            await runner.setup()
            assert runner.server is not None
            await servers.look(FIRST_LOOK_S)
            doorways = [Doorway(self._http, runner.server, app[CONNECTIONS], context)]
            wyoming = WyomingDoor(
                servers, app[CATALOGS], app[METRICS], config.wyoming_key, app[CONNECTIONS], config.wyoming_text_format
            )
            ports = {"port": self.port}
            if self._wyoming is not None:
                doorways.append(Doorway(self._wyoming, wyoming.protocol, app[CONNECTIONS]))
                ports["wyoming_port"] = self.wyoming_port
            announce("listening", **ports, servers=list(config.servers))
            try:
                await drain.wait()
            finally:
                for doorway in doorways:
                    doorway.close()
                await asyncio.gather(runner.cleanup(), wyoming.drain(config.drain_grace_s))
                announce("stopped")
