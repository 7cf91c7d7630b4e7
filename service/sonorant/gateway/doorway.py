"""Accepts the connections of one port, and makes the TLS handshake with each."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import cast

from sonorant.gateway.web.connections import Connections

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
MOST_AT_ONCE = 16  # of connections, in one turn of the loop
PAUSE_S = 0.1  # after a failure
READ_BYTES = 32 * 1024  # at a time: as tiny chunks of a body, these are 5 ms of work


class Doorway:
    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        connections: Connections,
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
            opening = _Opening(self._protocol(), self._connections)
            task = asyncio.create_task(opening.run(accepted, self._tls))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)


_read = memoryview(bytearray(READ_BYTES))  # of all connections, since what was read is taken at once


class _Opening(asyncio.BufferedProtocol):
    """One connection: counted from its beginning, when it may have no transport yet, to its end."""

    def __init__(self, protocol: asyncio.Protocol, connections: Connections) -> None:
        self._protocol = protocol
        self._connections = connections
        self._transport: asyncio.WriteTransport | None = None
        self._task: asyncio.Task[None] | None = None

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def run(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Make the handshake, if there is one."""
        self._task = asyncio.current_task()
        self._connections.admit(self)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self, accepted, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S if tls else None
            )
        except (OSError, asyncio.CancelledError):
            accepted.close()  # ssl.SSLError is an OSError
        finally:
            if self._transport is None:
                self._connections.forget(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._connections.replace(self, self._transport)
        self._protocol.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._connections.forget(self._transport)
        self._protocol.connection_lost(error)

    def get_buffer(self, _: int) -> memoryview:
        return _read

    def buffer_updated(self, num_bytes: int) -> None:
        self._protocol.data_received(bytes(_read[:num_bytes]))

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
