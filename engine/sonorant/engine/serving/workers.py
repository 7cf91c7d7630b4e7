"""The two worker processes of a pair and the rings between them: started once, stopped once.

If one worker dies, the other is stopped, too, because the state of the rings belongs to both. A new pair gets new ones.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.code2wav import process as code2wav
from sonorant.engine.config import EngineConfig, StageName
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.channel import RingInbox, RingOutbox
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.doorbell import Doorbell
from sonorant.engine.ipc.fork_server import WORKERS
from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.inherited import Inheritable
from sonorant.engine.ipc.messages import Command, PcmRecord
from sonorant.engine.ipc.ring import Ring
from sonorant.engine.serving.ring_sizes import RingSizes
from sonorant.engine.serving.watch import Watch
from sonorant.engine.talker import process as talker

log = logging.getLogger(__name__)

HEALTH_CHECK_S = 1.0

Facts = Mapping[str, Mapping[str, Any]]  # what each worker reported when it had loaded, by the worker's name


class Workers:
    """One talker, one Code2Wav."""

    def __init__(
        self,
        config: EngineConfig,
        model: str,
        ends: tuple[RingOutbox[Command], RingInbox[PcmRecord]],
        rings: Sequence[Ring],
        heartbeats: Sequence[Heartbeat],
        children: Sequence[Child],
        resources: contextlib.ExitStack,
    ) -> None:
        """Use `Workers.start`. `resources` closes all the other arguments' files and processes; `stop` does so."""
        self._model = model
        self._resources = resources
        self.outbox, self.inbox = ends
        self.rings = rings
        self.facts: dict[str, Mapping[str, Any]] = {}  # as `Facts`
        self.children = children
        self.heartbeats = heartbeats
        self.health_check_s = min(HEALTH_CHECK_S, config.hang_timeout_s / 2)
        self.watches = [
            Watch(child.name, beat, ring, config.hang_timeout_s, self.health_check_s)
            for child, beat, ring in zip(children, heartbeats, rings, strict=False)
        ]

    @classmethod
    async def start(cls, config: EngineConfig, checkpoint: Checkpoint, facts: Facts) -> "Workers":
        """Start both workers and return while they load. Raises OSError if they cannot be started, and leaves nothing.

        `facts`: of the workers that these replace, if there were any.
        """
        sizes = RingSizes.of(config, checkpoint)
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            beats = [ours.enter_context(contextlib.closing(Heartbeat())) for _ in range(2)]
            rings = [ours.enter_context(contextlib.closing(Ring(size))) for size in astuple(sizes)]
            # Only the child may hold its own ends: its death shows by their closing.
            bells = [_doorbell(ours, theirs), _doorbell(theirs, theirs), _doorbell(theirs, ours)]
            outboxes: list[RingOutbox[Any]] = [
                RingOutbox(ring, bell) for ring, (bell, _) in zip(rings, bells, strict=True)
            ]
            inboxes: list[RingInbox[Any]] = [
                RingInbox(ring, bell) for ring, (_, bell) in zip(rings, bells, strict=True)
            ]
            children: list[Child] = []
            stages: tuple[tuple[StageName, Any, tuple[Heartbeat, ...], tuple[Any, ...]], ...] = (
                ("talker", talker.main, (beats[0], beats[1]), (facts.get("talker", {}),)),
                ("code2wav", code2wav.main, (beats[1],), ()),
            )
            for n, (stage, main, seen, known) in enumerate(stages):
                ends: tuple[Inheritable, ...] = (inboxes[n], outboxes[n + 1], *seen)
                child = await WORKERS.fork(
                    stage, main, (config, *ends, *known), ends, config.environment(stage), config.start_timeout_s
                )
                children.append(ours.enter_context(contextlib.closing(child)))
            return cls(config, checkpoint.name, (outboxes[0], inboxes[2]), rings, beats, children, ours.pop_all())

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
