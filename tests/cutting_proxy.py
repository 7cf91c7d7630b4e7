"""A TCP proxy whose connections can be cut, as by a network that a laptop has left."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

PIECE_BYTES = 65_536


class CuttingProxy:
    """In front of a port of this machine. Leaving it cuts what is connected."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[Any]] = set()
        self.port = 0
        self.is_down = False  # whether new connections are cut at once, as by a server that is not there

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._connections)
        await self._server.wait_closed()

    @property
    def num_connections(self) -> int:
        return len(self._connections)

    def cut(self) -> bool:
        """All connections, without a word to either end. False if there are none."""
        for writer in self._writers:
            writer.transport.abort()
        return bool(self._writers)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        writers = [writer]
        try:
            with suppress(OSError):
                if self.is_down:
                    return
                there, to_there = await asyncio.open_connection("127.0.0.1", self._target_port)
                writers.append(to_there)
                self._writers.update(writers)
                await asyncio.gather(_pass_on(reader, to_there), _pass_on(there, writer))
        finally:
            self._writers.difference_update(writers)
            for each in writers:
                each.transport.abort()
                with suppress(OSError):
                    await each.wait_closed()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until either end is gone; the other way ends with this one."""
    with suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    writer.transport.abort()
