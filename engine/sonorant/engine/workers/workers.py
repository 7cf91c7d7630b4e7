"""The two worker processes of a pair and the rings between them: started once, stopped once.

Each server process has a ring A and a ring C; one ring B connects the workers. If one worker dies, the other is
stopped, too, because the state of the rings belongs to both. A new pair gets new ones.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sonorant.engine.code2wav import process as code2wav
from sonorant.engine.config import EngineConfig, StageName
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.channel import RingInbox, RingOutbox
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.doorbell import Doorbell
from sonorant.engine.ipc.fork_server import WORKERS
from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.inherited import Inheritable
from sonorant.engine.ipc.messages import Command, FrameRecord, PcmRecord
from sonorant.engine.ipc.ring import Ring
from sonorant.engine.ipc.shared_channels import SharedInbox, SharedOutbox
from sonorant.engine.talker import process as talker
from sonorant.engine.workers.ring_sizes import RingSizes
from sonorant.engine.workers.seat import Facts, Seat
from sonorant.engine.workers.watch import Watch

log = logging.getLogger(__name__)

HEALTH_CHECK_S = 1.0


class Workers:
    """One talker, one Code2Wav."""

    def __init__(
        self,
        config: EngineConfig,
        model: str,
        seats: Sequence[Seat],
        heartbeats: Sequence[Heartbeat],
        children: Sequence[Child],
        resources: contextlib.ExitStack,
    ) -> None:
        """Use `Workers.start`. `resources` closes all the other arguments' files and processes; `stop` does so."""
        self._model = model
        self._resources = resources
        self.seats = seats  # by the number of the server process
        self.facts: dict[str, Mapping[str, Any]] = {}  # as `Facts`
        self.children = children
        self.health_check_s = min(HEALTH_CHECK_S, config.hang_timeout_s / 2)
        inboxes = [(0, seat.rings[0]) for seat in seats] + [(1, seats[0].rings[1])]
        self.watches = [
            Watch(children[n].name, heartbeats[n], ring, config.hang_timeout_s, self.health_check_s)
            for n, ring in inboxes
        ]

    @classmethod
    async def start(
        cls, config: EngineConfig, model: str, sizes: RingSizes, facts: Facts, num_servers: int
    ) -> "Workers":
        """Start both workers and return while they load. Raises OSError if they cannot be started, and leaves nothing.

        `facts`: of the workers that these replace or stand by for, if there were any.
        """
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:

            def ring(num_bytes: int) -> Ring:
                return ours.enter_context(contextlib.closing(Ring(num_bytes)))

            # Only the child may hold its own ends: its death shows by their closing.
            frames, bells = ring(sizes.frames), _doorbell(theirs, theirs)
            frames_out, frames_in = RingOutbox[FrameRecord](frames, bells[0]), RingInbox[FrameRecord](frames, bells[1])
            beats = {name: ours.enter_context(contextlib.closing(Heartbeat())) for name in ("talker", "code2wav")}
            seats, inboxes, outboxes = list[Seat](), list[RingInbox[Command]](), list[RingOutbox[PcmRecord]]()
            for _ in range(num_servers):
                commands, bells = ring(sizes.commands), _doorbell(ours, theirs)
                outbox = RingOutbox[Command](commands, bells[0])
                inboxes.append(RingInbox(commands, bells[1]))
                pcm, bells = ring(sizes.pcm), _doorbell(theirs, ours)
                outboxes.append(RingOutbox(pcm, bells[0]))
                seats.append(Seat(outbox, RingInbox(pcm, bells[1]), (commands, frames, pcm), beats))
            first = inboxes[0] if num_servers == 1 else SharedInbox(inboxes)
            last = outboxes[0] if num_servers == 1 else SharedOutbox(outboxes)
            children: list[Child] = []
            stages: tuple[tuple[StageName, Any, tuple[Inheritable, ...], tuple[Any, ...]], ...] = (
                ("talker", talker.main, (first, frames_out, *beats.values()), (facts.get("talker", {}),)),
                ("code2wav", code2wav.main, (frames_in, last, beats["code2wav"]), (facts.get("code2wav", {}),)),
            )
            for stage, main, ends, known in stages:
                child = await WORKERS.fork(
                    stage, main, (config, *ends, *known), ends, config.environment(), config.start_timeout_s
                )
                children.append(ours.enter_context(contextlib.closing(child)))
            return cls(config, model, seats, tuple(beats.values()), children, ours.pop_all())

    async def ready(self, timeout_s: float) -> None:
        """Wait until both have loaded. Raises EngineError with the reason as soon as one cannot."""
        greetings = [asyncio.ensure_future(self._greet(child)) for child in self.children]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*greetings)
        except TimeoutError:
            raise EngineError(f"the workers did not load the model within {timeout_s:g} s; see their log") from None
        finally:
            for greeting in greetings:
                greeting.cancel()
            await asyncio.gather(*greetings, return_exceptions=True)

    async def _greet(self, child: Child) -> None:
        value = await child.loaded()
        self.facts[child.name] = value
        log.info("%s worker %d of %s is ready: %s", child.name, child.pid, self._model, value)

    async def stop(self, grace_s: float) -> None:
        """Wait `grace_s` for the workers to exit by themselves, kill those that do not, and release everything."""
        with self._resources:
            try:
                async with asyncio.timeout(grace_s):
                    await self._dead()
            except TimeoutError:
                for child in self.children:
                    child.kill()
                await self._dead()

    async def _dead(self) -> None:
        for child in self.children:
            await child.dead()


def _doorbell(writer: contextlib.ExitStack, reader: contextlib.ExitStack) -> tuple[Doorbell, Doorbell]:
    """Make a doorbell; each end is closed with the stack of its side."""
    ends = Doorbell.pair()
    for stack, end in zip((writer, reader), ends, strict=True):
        stack.enter_context(contextlib.closing(end))
    return ends
