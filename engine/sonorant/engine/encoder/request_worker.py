"""A process that answers one request at a time, and our end of its socket."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

from sonorant.engine.encoder.wire import Fields, packed, read_answer
from sonorant.engine.errors import EncodingFailed, EngineError, EngineUnavailable
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.fork_server import WORKERS
from sonorant.engine.ipc.handed import SocketEnd

log = logging.getLogger(__name__)

READ_AHEAD_BYTES = 4 * 2**20  # the samples of the longest recording arrive without a pause


class Died(Exception):
    """The process died; the argument is its exit code."""


class RequestWorker:
    def __init__(self, child: Child, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use `RequestWorker.start`."""
        self.child = child
        self._reader = reader
        self._writer = writer
        self._death = asyncio.create_task(child.dead(), name="death", context=Context())

    @classmethod
    async def start(
        cls,
        name: str,
        main: Callable[..., None],
        settings: object,
        environment: Mapping[str, str],
        timeout_s: float,
    ) -> "RequestWorker":
        """Start a process that runs `main(settings, end of a socket, ready)`, and wait until it has loaded.

        Raises CheckpointError or EngineError with the reason if it cannot, and leaves nothing.
        """
        WORKERS.hold()
        worker = None
        try:
            begun_s = time.monotonic()
            worker = await cls._fork(name, main, settings, environment, timeout_s)
            async with asyncio.timeout(timeout_s):
                facts = await worker.child.loaded()
            took_s = time.monotonic() - begun_s
            log.info("%s worker %d is ready after %.1f s: %s", name, worker.child.pid, took_s, facts)
            return worker
        except BaseException as error:
            if worker is not None:
                await worker.stop()
            else:
                WORKERS.release()
            if isinstance(error, EngineError) or not isinstance(error, OSError):  # TimeoutError is an OSError
                raise
            reason = str(error) or f"it did not load within {timeout_s:g} s"
            raise EngineUnavailable(f"the {name} cannot be started: {reason}") from error

    @classmethod
    async def _fork(
        cls, name: str, main: Callable[..., None], settings: object, environment: Mapping[str, str], timeout_s: float
    ) -> "RequestWorker":
        ours, theirs = socket.socketpair()
        with theirs:  # only the child may hold it: its death shows by its closing
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=READ_AHEAD_BYTES)
            try:
                child = await WORKERS.fork(name, main, (settings, SocketEnd(theirs)), environment, timeout_s)
                return cls(child, reader, writer)
            except BaseException:
                writer.close()
                raise

    async def ask(self, fields: Fields, data: bytes, max_bytes: int, timeout_s: float) -> tuple[Any, bytes]:
        """Have a request answered. Raises InvalidRecording or EncodingFailed if the answer is one, TimeoutError, Died,
        or ValueError for an invalid answer; after these three it can only be stopped."""
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(packed(fields, data))
                await self._writer.drain()
                return await read_answer(self._reader, max_bytes)
        except (ConnectionError, asyncio.IncompleteReadError):
            await self.dead()
            raise Died(self.child.wait()) from None

    async def dead(self) -> None:
        """Wait until the process is dead. Any number of tasks may wait."""
        await asyncio.shield(self._death)

    async def stop(self) -> None:
        """Kill the process at once, as it has nothing to save."""
        self._writer.close()
        self.child.kill()
        try:
            await self.dead()
        finally:
            self._death.cancel()
            self.child.close()
            WORKERS.release()


def fault(error: Exception, name: str, timeout_s: float) -> EncodingFailed:
    """What to tell the caller of a recording at which `RequestWorker.ask` raised TimeoutError, Died or ValueError."""
    match error:
        case TimeoutError():
            what = f"the {name} took more than {timeout_s:g} s for the recording"
        case Died():
            what = f"the {name} died of the recording (exit code {error})"
        case _:
            what = f"the {name} gave an invalid answer ({error})"
    return EncodingFailed(f"{what}; give it as a WAV file, or give another")
