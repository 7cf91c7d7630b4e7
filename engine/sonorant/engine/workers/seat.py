"""What one server process has of a running worker pair: its ends of the rings, and a view of what the workers do.

It can be pickled for another process, which must get the file descriptors `fds` as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sonorant.engine.ipc.channel import RingInbox, RingOutbox
from sonorant.engine.ipc.heartbeat import Heartbeat, Work
from sonorant.engine.ipc.messages import Command, PcmRecord
from sonorant.engine.ipc.ring import Ring

Facts = Mapping[str, Mapping[str, Any]]  # what each worker reported when it had loaded, by the worker's name


@dataclass(frozen=True, slots=True)
class Seat:
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

    def fds(self) -> tuple[int, ...]:
        beats = (fd for beat in self.heartbeats.values() for fd in beat.fds())
        return (*self.outbox.fds(), *self.inbox.fds(), *self.rings[1].fds(), *beats)

    def close(self) -> None:
        """Close what another process has passed on."""
        self.outbox.close()
        self.inbox.close()
        self.rings[1].close()
        for heartbeat in self.heartbeats.values():
            heartbeat.close()
