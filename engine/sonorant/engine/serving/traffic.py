"""The records between this process and the workers of one pair: commands out, audio in. Knows nothing of streams."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from sonorant.engine.ipc.channel import PeerGone
from sonorant.engine.ipc.messages import Command, OpenStream, PcmRecord
from sonorant.engine.workers.endpoint import Endpoint

log = logging.getLogger(__name__)


class Traffic:
    """Carries records while workers are attached. The callbacks run in the event loop's thread."""

    def __init__(
        self, name: str, on_records: Callable[[Sequence[PcmRecord]], None], on_failure: Callable[[str], None]
    ) -> None:
        """`on_records` gets all records of ring C; `on_failure` gets the reason if it raises an error."""
        self._name = name
        self._on_records = on_records
        self._on_failure = on_failure
        self._endpoint: Endpoint | None = None
        self._backlog: list[Command] = []
        self._flush_scheduled = False
        self._awaits_room = False  # a reader of the outbox flushes once there is room

    @property
    def backlog(self) -> int:
        """Commands not yet on ring A."""
        return len(self._backlog)

    def attach(self, endpoint: Endpoint) -> None:
        """Begin with new workers."""
        self._endpoint = endpoint
        asyncio.get_running_loop().add_reader(endpoint.inbox.fileno(), self._receive)

    def detach(self) -> None:
        """Take the last records of workers that have gone down. What was sent and not answered is lost."""
        if self._endpoint is None:
            return
        self._receive()
        endpoint, self._endpoint = self._endpoint, None
        for end in (endpoint.outbox, endpoint.inbox):
            asyncio.get_running_loop().remove_reader(end.fileno())
        self._backlog.clear()
        self._flush_scheduled = self._awaits_room = False

    def publish(self, command: Command) -> None:
        """Send a command, and never block or drop any.

        The first stream that is opened in a turn of the event loop is sent at once, as somebody waits for its audio.
        All other commands of the turn follow in order, as one batch.
        """
        self._backlog.append(command)
        if self._flush_scheduled:
            return
        self._flush_scheduled = True
        if isinstance(command, OpenStream):
            self._flush()
            if self._backlog:  # it waits for room
                return
            self._flush_scheduled = True
        asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if not self._backlog:
            self._flush_scheduled = False
            return
        if self._endpoint is None:  # without workers, commands are lost
            self._backlog.clear()
            self._flush_scheduled = False
            return
        loop = asyncio.get_running_loop()
        outbox = self._endpoint.outbox
        if self._awaits_room:
            loop.remove_reader(outbox.fileno())
        try:
            del self._backlog[: outbox.try_publish(self._backlog)]
        except PeerGone:  # the talker's death is about to be noticed
            self._backlog.clear()
        self._flush_scheduled = self._awaits_room = bool(self._backlog)
        if self._backlog:
            loop.add_reader(outbox.fileno(), self._flush)

    def _receive(self) -> None:
        assert self._endpoint is not None
        inbox = self._endpoint.inbox
        try:
            self._on_records(inbox.drain())
        except PeerGone:
            asyncio.get_running_loop().remove_reader(inbox.fileno())
        except Exception as error:  # an internal error; a stream that misses a record would wait for ever
            log.exception("records from the workers of %s could not be handled", self._name)
            self._on_failure(f"{type(error).__name__} while handling records from the workers")
