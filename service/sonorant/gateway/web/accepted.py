"""One accepted connection: its handshake, what is read from it, and what is no longer read."""

import asyncio
import socket
import ssl
from typing import cast

from sonorant.gateway.web.connections import OpenConnections

HANDSHAKE_S = 10.0
READ_BYTES = 32 * 1024  # at a time: as tiny chunks of a body, these are 5 ms of work

_read = memoryview(bytearray(READ_BYTES))  # of all connections, since what was read is taken at once


class AcceptedConnection(asyncio.BufferedProtocol):
    """One connection: counted from its beginning, when it may have no transport yet, to its end."""

    def __init__(self, protocol: asyncio.Protocol, connections: OpenConnections) -> None:
        self._protocol = protocol
        self._connections = connections
        self._transport: asyncio.WriteTransport | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_heard = True

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
        if self.is_heard:
            self._protocol.data_received(bytes(_read[:num_bytes]))

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


def ignore_rest(transport: asyncio.BaseTransport | None) -> None:
    """Throw away unread what the caller still sends: a refused body may be dear to take apart. The connection closes
    after its answer. None = it is lost already."""
    if transport is not None and isinstance(connection := transport.get_protocol(), AcceptedConnection):
        connection.is_heard = False
