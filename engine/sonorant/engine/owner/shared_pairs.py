"""Owns worker pairs that several server processes use: runs them, hands out endpoints, clears up after the dead.

A server process has an `EnginePool`. It is welcomed when all pairs have loaded, and then told every change.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from sonorant.engine.config import EngineConfig, MpsMode
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.channel import PeerGone
from sonorant.engine.ipc.fork_server import WORKERS
from sonorant.engine.ipc.handed import Packets
from sonorant.engine.ipc.messages import EndServer
from sonorant.engine.ipc.server_ids import MAX_SERVERS
from sonorant.engine.owner.board import Board
from sonorant.engine.owner.encoders import Encoders
from sonorant.engine.owner.link_messages import (
    Acquitted,
    Broken,
    Drop,
    Encode,
    Judged,
    Lost,
    PairState,
    Released,
    RoomFreed,
    Welcome,
)
from sonorant.engine.workers.auto import is_large_on_the_cpu
from sonorant.engine.workers.endpoint import Endpoint, EngineState, assign_standbys
from sonorant.engine.workers.judge import Inquiries
from sonorant.engine.workers.prepared import prepared
from sonorant.engine.workers.worker_pair import WorkerPair

log = logging.getLogger(__name__)

MAX_PAIRS = 32  # an endpoint at each goes into one message, and has seven descriptors


@asynccontextmanager
async def shared_pairs(configs: Sequence[EngineConfig], num_servers: int, mps: MpsMode) -> "AsyncIterator[SharedPairs]":
    """Yield the owner of a worker pair for each config; `start` it. At the end all workers are stopped.

    Raises CheckpointError if the checkpoints do not go together, or EngineError if there are too many of either.
    """
    async with prepared(configs, mps) as ready:
        pairs = SharedPairs(ready, num_servers)
        try:
            yield pairs
        finally:
            await pairs.close()


class _Connection:
    """To a running server process."""

    def __init__(self, number: int, generation: int, packets: Packets) -> None:
        self.number = number
        self.generation = generation
        self.packets = packets
        self.is_welcome = False


class SharedPairs:
    def __init__(self, configs: Sequence[EngineConfig], num_servers: int) -> None:
        """Use `shared_pairs`."""
        if num_servers > MAX_SERVERS or len(configs) > MAX_PAIRS:
            raise EngineError(
                f"{num_servers} server processes and {len(configs)} worker pairs; the most are {MAX_SERVERS} and "
                f"{MAX_PAIRS}, or one process"
            )
        self.configs = configs  # with all sizes chosen
        self.num_servers = num_servers
        self._board = Board(len(configs), num_servers)
        self._pairs = [WorkerPair(number, config, num_servers, self) for number, config in enumerate(configs)]
        self._inquiries = {config.model: Inquiries() for config in configs}  # for all pairs of a checkpoint
        self._encoders = Encoders(configs)
        # Memory is short where large models speak on the CPU. Encoders start processes later, and should not wait.
        self._saves_memory = self._encoders.is_empty and all(map(is_large_on_the_cpu, configs))
        self._has_started = False
        self._connections: dict[int, _Connection] = {}  # by the number of the server process
        self._generations = [-1] * num_servers
        self._cleared: dict[tuple[int, int], asyncio.Future[None]] = {}  # by pair and server process
        self._late: list[asyncio.Task[None]] = []  # which load standbys

    async def start(self) -> None:
        """Start all workers and encoders; return when they have loaded, but for standbys, which are loaded afterwards.
        Raises CheckpointError or EngineError if they cannot."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for pair in self._pairs:
                    if not pair.is_standby:
                        tasks.create_task(pair.start())
                tasks.create_task(self._encoders.start())
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        self._has_started = True
        for connection in self._connections.values():
            self._welcome(connection)
        standbys = [pair for pair in self._pairs if pair.is_standby]
        self._late = [asyncio.create_task(self._load_standby(pair), name="standby") for pair in standbys]

    async def _load_standby(self, pair: WorkerPair) -> None:
        await asyncio.sleep(pair.config.standby_delay_s)
        alike = [other for other in self._pairs if replace(other.config, is_standby=True) == pair.config]
        known = next((other.workers.facts for other in alike if other.workers is not None), None)
        try:
            await pair.start(known)
        except EngineError as error:
            log.error("there is no standby: %s", error)
            pair.enter(EngineState.FAILED, str(error))

    @property
    def have_failed(self) -> bool:
        """Whether no pair runs or will run again."""
        return all(pair.state is EngineState.FAILED for pair in self._pairs)

    def restarts(self) -> list[tuple[str, int]]:
        """Return the model of each pair, and how often its workers had to be replaced."""
        return [(pair.config.model.name, pair.num_restarts) for pair in self._pairs]

    def connect(self, server: int) -> socket.socket:
        """Return the socket for a process that becomes this server process. The one before it was cleared."""
        ours, theirs = Packets.pair()
        self._generations[server] += 1
        connection = self._connections[server] = _Connection(server, self._generations[server], Packets(ours))
        connection.packets.listen(lambda message: self._on_message(connection, message), lambda: None)
        if self._has_started:
            self._welcome(connection)
        return theirs

    def leave(self, server: int) -> None:
        """The process of a server process has ended."""
        self._connections.pop(server).packets.close()
        self._encoders.leave(server)
        for inquiries in self._inquiries.values():
            inquiries.leave(server)
            self._release(inquiries)
        for pair in self._pairs:
            self.judge(pair, must=False)

    async def clear(self, server: int) -> None:
        """End everything of a server process that has left, so that another process can take its place."""
        await asyncio.gather(*(self._end_streams(pair, server) for pair in self._pairs))
        self._board.clear(server)
        self._broadcast(RoomFreed())

    async def close(self) -> None:
        """Stop all workers. All server processes must have ended."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await asyncio.gather(self._encoders.close(), *(pair.close() for pair in self._pairs))
        for connection in self._connections.values():
            connection.packets.close()
        self._board.close()

    # Pairs

    def on_state(self, pair: WorkerPair, reason: str) -> None:
        if pair.state is not EngineState.READY:
            for (number, _), cleared in self._cleared.items():
                if number == pair.number and not cleared.done():
                    cleared.set_result(None)
        assign_standbys([each for each in self._pairs if each.config.model == pair.config.model])
        welcome = [connection for connection in self._connections.values() if connection.is_welcome]
        if pair.state is EngineState.RESTARTING:
            self._inquiries[pair.config.model].open(pair.number, [connection.number for connection in welcome])
        for connection in welcome:
            connection.packets.send(_news(pair, connection.number, reason))
        self.judge(pair, must=False)
        if self._saves_memory and all(each.state is EngineState.READY for each in self._pairs):
            WORKERS.rest()

    def judge(self, pair: WorkerPair, *, must: bool) -> None:
        """Judge a death once all answers have come, or if it `must` be, with those that have."""
        inquiries = self._inquiries[pair.config.model]
        ruling = inquiries.judge(pair.number, must=must)
        if ruling is not None:
            self._broadcast(Judged(pair.number, ruling.culprit))
            self._release(inquiries)
            pair.judge(is_forgiven=ruling.is_narrower)

    def _release(self, inquiries: Inquiries) -> None:
        for server, stream_ids in inquiries.released().items():
            if server in self._connections:
                self._connections[server].packets.send(Released(tuple(stream_ids)))

    async def _end_streams(self, pair: WorkerPair, server: int) -> None:
        """End a dead server process's streams with the workers, and empty its rings."""
        if pair.state is not EngineState.READY or pair.workers is None:
            return  # it ends with the workers
        endpoint = pair.workers.endpoints[server]
        key, loop = (pair.number, server), asyncio.get_running_loop()
        cleared = self._cleared[key] = loop.create_future()
        endpoint.outbox.go_on()
        endpoint.inbox.go_on()
        fds = [endpoint.outbox.fileno(), endpoint.inbox.fileno()]
        try:
            loop.add_reader(fds[1], _take_until_end, endpoint, cleared)
            if not _sent_end(endpoint, server):
                loop.add_reader(fds[0], _send_end, endpoint, server)
            await cleared
        finally:
            for fd in fds:
                loop.remove_reader(fd)
            del self._cleared[key]

    # Server processes

    def _welcome(self, connection: _Connection) -> None:
        connection.is_welcome = True
        welcome = Welcome(
            connection.number,
            connection.generation,
            self._board,
            tuple(_news(pair, connection.number) for pair in self._pairs),
            tuple(pair.is_standby for pair in self._pairs),
        )
        connection.packets.send(welcome)

    def _broadcast(self, message: object, but: int = -1) -> None:
        for connection in self._connections.values():
            if connection.is_welcome and connection.number != but:
                connection.packets.send(message)

    def _on_message(self, connection: _Connection, message: Any) -> None:
        match message:
            case Lost(number, stream_ids, heard):
                pair = self._pairs[number]
                if self._inquiries[pair.config.model].answer(number, connection.number, stream_ids, heard):
                    self.judge(pair, must=False)
                else:  # it comes too late to matter
                    connection.packets.send(Judged(number, 0))
                    connection.packets.send(Released(stream_ids))
            case Acquitted(stream_ids):
                for inquiries in self._inquiries.values():
                    inquiries.acquit(stream_ids)
                    self._release(inquiries)
            case Encode():
                self._encoders.encode(connection.number, message, connection.packets.send)
            case Drop(job):
                self._encoders.drop(connection.number, job)
            case RoomFreed():
                self._broadcast(message, but=connection.number)
            case Broken(number, reason):
                if self._pairs[number].state is EngineState.READY:
                    self._pairs[number].report_down(reason)


def _news(pair: WorkerPair, server: int, reason: str = "") -> PairState:
    workers = pair.workers if pair.state is EngineState.READY else None
    if workers is None:
        return PairState(pair.number, pair.state, reason, {}, None)
    return PairState(pair.number, pair.state, reason, workers.facts, workers.endpoints[server])


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _sent_end(endpoint: Endpoint, server: int) -> bool:
    with suppress(PeerGone):  # then the pair's new state comes in a moment
        return bool(endpoint.outbox.try_publish([EndServer(server)]))
    return True


def _send_end(endpoint: Endpoint, server: int) -> None:
    if _sent_end(endpoint, server):
        asyncio.get_running_loop().remove_reader(endpoint.outbox.fileno())


def _take_until_end(endpoint: Endpoint, cleared: "asyncio.Future[None]") -> None:
    try:
        ended = any(isinstance(record, EndServer) for record in endpoint.inbox.drain())
    except PeerGone:
        asyncio.get_running_loop().remove_reader(endpoint.inbox.fileno())
        return
    if ended and not cleared.done():
        cleared.set_result(None)
