"""A server process's link to the owner of the worker pairs: follows their states, and has deaths judged there."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.handed import Packets
from sonorant.engine.ipc.server_ids import new_ids
from sonorant.engine.owner.board import Board, Entry
from sonorant.engine.owner.link_messages import (
    Acquitted,
    Broken,
    Encoded,
    Judged,
    Lost,
    PairState,
    Released,
    RoomFreed,
    Welcome,
)
from sonorant.engine.owner.recordings import Recordings
from sonorant.engine.serving.keeping import KeptStream


class ServerProcess:
    """This server process among those that use the same worker pairs; it may be the only one."""

    def __init__(
        self,
        board: Board,
        number: int = 0,
        generation: int = 0,
        tell_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell_room` tells the other server processes that there is room for what waits."""
        self.ids = new_ids(number, generation)  # of streams and runs
        self._board = board
        self._number = number
        self._is_alone = board.num_servers == 1
        self._tell_room = tell_room

    def entry(self, pair: int) -> Entry:
        """What this server process, and the others, have taken of a pair."""
        return Entry(self._board, pair, self._number)

    def set_waiting(self, waits: bool) -> None:
        """Note whether streams wait for room that others may give up. Look for room after this, not before."""
        if not self._is_alone:
            self._board.set_waiting(self._number, waits)

    def room_freed(self) -> None:
        """A place that this server process had is free, as the board says already."""
        if not self._is_alone and self._board.any_waits(but=self._number):
            self._tell_room()


class OwnerLink:
    """Use `OwnerLink.open`, make everything that follows the pairs, then `listen`."""

    def __init__(self, packets: Packets, welcome: Welcome) -> None:
        self._packets = packets
        self._welcome = welcome
        self._pairs: dict[int, Callable[[PairState], None]] = {}  # what follows each
        self._on_room: Callable[[], None] = lambda: None
        self.verdicts = Verdicts(packets)
        self.recordings = Recordings(packets)
        self.process = ServerProcess(
            welcome.board, welcome.number, welcome.generation, lambda: packets.send(RoomFreed())
        )

    @classmethod
    async def open(cls, end: socket.socket) -> "OwnerLink":
        """Wait until all pairs have loaded. Raises EngineError if the owner is gone before."""
        packets = Packets(end)
        welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()

        def on_message(message: Welcome) -> None:
            packets.pause()
            if not welcome.cancelled():
                welcome.set_result(message)

        def on_gone() -> None:
            if not welcome.cancelled():  # this process may have been told in the same turn, by its stdin
                welcome.set_exception(EngineError("the process that owns the workers is gone"))

        packets.listen(on_message, on_gone)
        try:
            return cls(packets, await welcome)
        except BaseException:
            packets.close()
            raise

    @property
    def standbys(self) -> Sequence[bool]:
        """Which pairs are on standby."""
        return self._welcome.standbys

    def follow(self, number: int, change: Callable[[PairState], None]) -> PairState:
        """Return the present state of a pair; `change` gets all later ones."""
        self._pairs[number] = change
        return self._welcome.pairs[number]

    def report_down(self, number: int, reason: str) -> None:
        """Have the workers of a pair replaced."""
        self._packets.send(Broken(number, reason))

    def listen(self, on_room: Callable[[], None]) -> None:
        """Follow the owner's messages from now on. `on_room` is called when streams that wait may be able to go on."""
        self._on_room = self.verdicts.on_released = on_room
        self._packets.listen(self._on_message, self._on_gone)

    def close(self) -> None:
        """Close the link, after all that follows the pairs."""
        self.recordings.close("the engine is closed")
        self._packets.close()
        self._welcome.board.close()

    def _on_message(self, message: Any) -> None:
        match message:
            case PairState(number):
                self._pairs[number](message)
            case Judged(number, culprit):
                self.verdicts.on_judged(number, culprit)
            case Released(stream_ids):
                self.verdicts.on_release(stream_ids)
            case Encoded():
                self.recordings.on_encoded(message)
            case RoomFreed():
                self._on_room()

    def _on_gone(self) -> None:
        """This process drains now; nobody judges or encodes any more."""
        self.verdicts.release_all()
        self.recordings.close("the process that owns the encoder is gone")


class Verdicts:
    """Has deaths of workers judged by their owner, because streams of any server process may have caused them."""

    def __init__(self, packets: Packets) -> None:
        self.on_released: Callable[[], None] = lambda: None  # called when more streams may go on
        self._packets = packets
        self.reported: dict[int, KeptStream] = {}  # by id; not acquitted yet
        self.held: set[KeptStream] = set()  # these may not go on
        self._awaited: dict[int, Callable[[KeptStream | None], None]] = {}  # by the number of the pair

    def on_death(
        self, pair: int, live: Sequence[KeptStream], *, comes_back: bool, then: Callable[[KeptStream | None], None]
    ) -> None:
        """The workers of a pair with these streams have died. Call `then` with the culprit, if there is one, now or
        later; until then none of the streams may go on.
        """
        if not comes_back:  # there is nothing to find out
            then(None)
            return
        if pair in self._awaited:  # the last one was never judged here: the owner has gone on without
            self.on_judged(pair, 0)
        self._awaited[pair] = then
        self.held.update(live)
        self.reported.update((stream.stream_id, stream) for stream in live)
        heard = tuple(stream.stream_id for stream in live if stream.was_heard)
        self._packets.send(Lost(pair, tuple(stream.stream_id for stream in live), heard))

    def acquit(self, streams: Sequence[KeptStream]) -> None:
        """Clear streams that were heard, have ended, or have nothing to do next; only those that were `reported`."""
        stream_ids = tuple(stream.stream_id for stream in streams if stream.stream_id in self.reported)
        if stream_ids:
            for stream_id in stream_ids:
                self.held.discard(self.reported.pop(stream_id))
            self._packets.send(Acquitted(stream_ids))

    def on_judged(self, pair: int, culprit: int) -> None:
        if (then := self._awaited.pop(pair, None)) is not None:
            then(self.reported.get(culprit))

    def on_release(self, stream_ids: Sequence[int]) -> None:
        self.held.difference_update(self.reported[each] for each in stream_ids if each in self.reported)
        self.on_released()

    def release_all(self) -> None:
        for pair in list(self._awaited):
            self.on_judged(pair, 0)
        self.held.clear()
        self.on_released()
