"""A worker pair as its owner and the server processes see it: its state, whether it stands by, and endpoints at it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from sonorant.engine.ipc.heartbeat import Heartbeat, Work
from sonorant.engine.ipc.messages import Command, PcmRecord
from sonorant.engine.ipc.ring import Ring, RingInbox, RingOutbox

Facts = Mapping[str, Mapping[str, Any]]  # what each worker reported when it had loaded, by the worker's name


class EngineState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"  # the workers went down; live streams wait and continue with the new ones
    FAILED = "failed"  # the workers kept going down, and are not started again
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What one server process has of running workers: its ends of the rings, and a view of what the workers do.

    It can be handed to another process: see sonorant.engine.ipc.handed.
    """

    outbox: RingOutbox[Command]
    inbox: RingInbox[PcmRecord]
    rings: tuple[Ring, Ring, Ring]  # A and C of this server process, and the one ring B of the workers
    heartbeats: Mapping[str, Heartbeat]  # by the name of the worker

    def ring_bytes(self) -> tuple[int, int, int]:
        """Bytes in flight on the rings A, B and C."""
        commands, frames, pcm = (ring.used_bytes for ring in self.rings)
        return commands, frames, pcm

    def work(self) -> dict[str, Work]:
        """The totals of the workers since they started, by the worker's name."""
        return {name: heartbeat.work() for name, heartbeat in self.heartbeats.items()}

    def close(self) -> None:
        """Close what another process has passed on."""
        self.outbox.close()
        self.inbox.close()
        self.rings[1].close()
        for heartbeat in self.heartbeats.values():
            heartbeat.close()


class StandbyPair(Protocol):
    state: EngineState
    is_standby: bool


def assign_standbys(pairs: Sequence[StandbyPair]) -> None:
    """Let a standby that is ready replace a pair that is not; that pair becomes a standby.

    Every server process does so after each change of a pair, and the owner of the workers, too. They see the changes
    in the same order, so they come to the same result.
    """
    for pair in pairs:
        ready = [each for each in pairs if each.is_standby and each.state is EngineState.READY]
        if not pair.is_standby and pair.state is not EngineState.READY and ready:
            pair.is_standby, ready[0].is_standby = True, False
