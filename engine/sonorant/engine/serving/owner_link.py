"""A front's link to the process that owns the worker pairs: follows their states, and has deaths judged there."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.packets import Packets
from sonorant.engine.serving.front import Front
from sonorant.engine.serving.front_messages import (
    Acquitted,
    Broken,
    Judged,
    Lost,
    PairState,
    Released,
    RoomFreed,
    Welcome,
)
from sonorant.engine.serving.judge import MortalPair
from sonorant.engine.serving.keeping import KeptStream
from sonorant.engine.serving.seat import Seat
from sonorant.engine.serving.state import EngineState
from sonorant.engine.serving.suspects import Verdict
from sonorant.engine.serving.workers import Facts


class OwnerLink:
    """Use `OwnerLink.open`, make everything that follows the pairs, then `listen`."""

    def __init__(self, packets: Packets, welcome: Welcome) -> None:
        self._packets = packets
        self._welcome = welcome
        self._pairs: dict[int, FollowedPair] = {}
        self._judges: list[FarJudge] = []
        self._on_room: Callable[[], None] = lambda: None
        self.front = Front(welcome.board, welcome.number, welcome.generation, lambda: packets.send(RoomFreed()))

    @classmethod
    async def open(cls, end: socket.socket) -> "OwnerLink":
        """Wait until all pairs have loaded. Raises EngineError if the owner is gone before."""
        packets = Packets(end)
        welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()

        def on_message(message: Welcome) -> None:
            packets.pause()
            welcome.set_result(message)

        packets.listen(
            on_message, lambda: welcome.set_exception(EngineError("the process that owns the workers is gone"))
        )
        try:
            return cls(packets, await welcome)
        except BaseException:
            packets.close()
            raise

    @property
    def standbys(self) -> Sequence[bool]:
        """Which pairs are on standby."""
        return self._welcome.standbys

    def follow(self, number: int) -> Callable[[Callable[[EngineState, str], None]], "FollowedPair"]:
        """Return what makes the upkeep of a pair, see `sonorant.engine.serving.upkeep`."""

        def make(on_state: Callable[[EngineState, str], None]) -> FollowedPair:
            self._pairs[number] = FollowedPair(self._welcome.pairs[number], on_state, self._packets)
            return self._pairs[number]

        return make

    def judge(self) -> "FarJudge":
        """Return a judge for the streams of one checkpoint."""
        self._judges.append(FarJudge(self._packets))
        return self._judges[-1]

    def listen(self, on_room: Callable[[], None]) -> None:
        """Follow the owner's messages from now on. `on_room` is called when another front has given up a place."""
        self._on_room = on_room
        self._packets.listen(self._on_message, self._on_gone)

    def close(self) -> None:
        """Close the link, after all that follows the pairs."""
        self._packets.close()
        self._welcome.board.close()

    def _on_message(self, message: Any) -> None:
        match message:
            case PairState(number):
                self._pairs[number].change(message)
            case Judged(number, culprit):
                for judge in self._judges:
                    judge.on_judged(number, culprit)
            case Released(stream_ids):
                for judge in self._judges:
                    judge.on_release(stream_ids)
            case RoomFreed():
                self._on_room()

    def _on_gone(self) -> None:
        """This process drains now, while the workers go on; nobody judges any more."""
        for judge in self._judges:
            judge.release_all()


class FollowedPair:
    """A worker pair that another process keeps running: an `Upkeep`."""

    def __init__(self, first: PairState, on_state: Callable[[EngineState, str], None], packets: Packets) -> None:
        self._first = first
        self._number = first.pair
        self._on_state = on_state
        self._packets = packets
        self._seat: Seat | None = None
        self._facts: Facts = {}

    async def start(self) -> None:
        self.change(self._first)

    def change(self, change: PairState) -> None:
        if change.state is EngineState.READY:
            self._seat, self._facts = change.seat, change.facts
            self._on_state(change.state, change.reason)
        else:
            self._leave(change.state, change.reason)

    def seat(self) -> Seat | None:
        return self._seat

    def facts(self) -> Facts:
        return self._facts

    def forgive(self) -> None:
        """Do nothing: the owner forgives."""

    def report_down(self, reason: str) -> None:
        self._packets.send(Broken(self._number, reason))

    async def close(self) -> None:
        self._leave(EngineState.CLOSED, "the engine is closed")

    def _leave(self, state: EngineState, reason: str) -> None:
        self._on_state(state, reason)
        if self._seat is not None:
            self._seat.close()
            self._seat = None


class FarJudge:
    """Has deaths of workers judged by their owner, because streams of other fronts may have caused them: a `Judge`."""

    def __init__(self, packets: Packets) -> None:
        self.on_released: Callable[[], None] = lambda: None
        self._packets = packets
        self._reported: dict[int, KeptStream] = {}  # by id; not acquitted yet
        self._held: set[KeptStream] = set()
        self._awaited: dict[int, Callable[[Verdict[KeptStream]], None]] = {}  # by the number of the pair

    def may_go_on(self, stream: KeptStream) -> bool:
        return stream not in self._held

    def on_death(
        self, pair: MortalPair, live: Sequence[KeptStream], then: Callable[[Verdict[KeptStream]], None]
    ) -> None:
        if pair.state is not EngineState.RESTARTING:  # it does not come back, so there is nothing to find out
            then(Verdict(None, False))
            return
        self.on_judged(pair.number, 0)  # if the last one was never judged here: the owner has gone on without
        self._awaited[pair.number] = then
        self._held.update(live)
        self._reported.update((stream.stream_id, stream) for stream in live)
        heard = tuple(stream.stream_id for stream in live if stream.was_heard)
        self._packets.send(Lost(pair.number, tuple(stream.stream_id for stream in live), heard))

    def acquit(self, streams: Sequence[KeptStream]) -> bool:
        if not self._reported:
            return False
        stream_ids = tuple(stream.stream_id for stream in streams if stream.stream_id in self._reported)
        if stream_ids:
            for stream_id in stream_ids:
                self._held.discard(self._reported.pop(stream_id))
            self._packets.send(Acquitted(stream_ids))
        return False  # the owner says who may go on now

    def on_judged(self, pair: int, culprit: int) -> None:
        if (then := self._awaited.pop(pair, None)) is not None:
            then(Verdict(self._reported.get(culprit), False))

    def on_release(self, stream_ids: Sequence[int]) -> None:
        self._held.difference_update(self._reported[each] for each in stream_ids if each in self._reported)
        self.on_released()

    def release_all(self) -> None:
        for pair in list(self._awaited):
            self.on_judged(pair, 0)
        self._held.clear()
        self.on_released()
