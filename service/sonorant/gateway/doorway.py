"""Accepts the connections of one port, and makes the TLS handshake with each."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from sonorant.gateway.web.accepted import AcceptedConnection
from sonorant.gateway.web.connections import OpenConnections

log = logging.getLogger(__name__)

MOST_AT_ONCE = 16  # of connections, in one turn of the loop
PAUSE_S = 0.1  # after a failure


class Doorway:
    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        connections: OpenConnections,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`protocol`: makes that of one connection."""
        self._listening = listening
        self._protocol = protocol
        self._connections = connections
        self._tls = tls
        self._opening: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        listening.setblocking(False)
        self._pausing: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept nobody any more. Connections that are open stay."""
        self._loop.remove_reader(self._listening)
        if self._pausing is not None:
            self._pausing.cancel()
        for task in self._opening:
            task.cancel()
        self._listening.close()

    def _listen(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        """Take a few of those who wait. What they send with their connection is read before more of them come."""
        for _ in range(MOST_AT_ONCE):
            try:
                accepted, _ = self._listening.accept()
            except BlockingIOError:
                return  # nobody waits any more
            except ConnectionError:
                continue  # the caller is gone
            except OSError as error:  # no descriptor is left, or no memory
                log.error("no connection can be accepted: %s", error.strerror)
                self._connections.close_one()
                self._loop.remove_reader(self._listening)
                self._pausing = self._loop.call_later(PAUSE_S, self._listen)
                return
            accepted.setblocking(False)
            opening = AcceptedConnection(self._protocol(), self._connections)
            task = asyncio.create_task(opening.run(accepted, self._tls))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
