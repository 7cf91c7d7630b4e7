"""The two processes of a worker pair, one talker and one Code2Wav, with all that they share with server processes.

Each server process has a ring A and a ring C; one ring B connects the workers. If one worker dies, the other is
stopped, too, because the state of the rings belongs to both.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sonorant.engine.code2wav import process as code2wav
from sonorant.engine.config import EngineConfig, StageName
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.child import Child, readable
from sonorant.engine.ipc.fork_server import WORKERS
from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.messages import Command, FrameRecord, PcmRecord
from sonorant.engine.ipc.ring import Doorbell, Ring, RingInbox, RingOutbox
from sonorant.engine.ipc.shared_channels import SharedInbox, SharedOutbox
from sonorant.engine.talker import process as talker
from sonorant.engine.workers.endpoint import Endpoint, Facts
from sonorant.engine.workers.ring_sizes import RingSizes
from sonorant.engine.workers.watch import WorkerWatch

log = logging.getLogger(__name__)

HEALTH_CHECK_S = 1.0


class Workers:
    """One talker, one Code2Wav, until `stop`."""

    def __init__(
        self,
        config: EngineConfig,
        model: str,
        endpoints: Sequence[Endpoint],
        heartbeats: Sequence[Heartbeat],
        children: Sequence[Child],
        resources: contextlib.ExitStack,
    ) -> None:
        """Use `Workers.start`. `resources` closes all the other arguments' files and processes; `stop` does so."""
        self._model = model
        self._resources = resources
        self.endpoints = endpoints  # by the number of the server process
        self.facts: dict[str, Mapping[str, Any]] = {}  # as `Facts`
        self.children = children
        self.health_check_s = min(HEALTH_CHECK_S, config.hang_timeout_s / 2)
        inboxes = [(0, endpoint.rings[0]) for endpoint in endpoints] + [(1, endpoints[0].rings[1])]
        self.watches = [
            WorkerWatch(children[n].name, heartbeats[n], ring, config.hang_timeout_s, self.health_check_s)
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

            def doorbell(*stacks: contextlib.ExitStack) -> list[Doorbell]:
                """Return the writer's end and the reader's; each is closed with the stack of its side."""
                ends = zip(stacks, Doorbell.pair(), strict=True)
                return [stack.enter_context(contextlib.closing(end)) for stack, end in ends]

            # Only the child may hold its own ends: its death shows by their closing.
            frames, bells = ring(sizes.frames), doorbell(theirs, theirs)
            frames_out, frames_in = RingOutbox[FrameRecord](frames, bells[0]), RingInbox[FrameRecord](frames, bells[1])
            beats = {name: ours.enter_context(contextlib.closing(Heartbeat())) for name in ("talker", "code2wav")}
            endpoints, inboxes, outboxes = list[Endpoint](), list[RingInbox[Command]](), list[RingOutbox[PcmRecord]]()
            for _ in range(num_servers):
                commands, bells = ring(sizes.commands), doorbell(ours, theirs)
                outbox = RingOutbox[Command](commands, bells[0])
                inboxes.append(RingInbox(commands, bells[1]))
                pcm, bells = ring(sizes.pcm), doorbell(theirs, ours)
                outboxes.append(RingOutbox(pcm, bells[0]))
                endpoints.append(Endpoint(outbox, RingInbox(pcm, bells[1]), (commands, frames, pcm), beats))
            first = inboxes[0] if num_servers == 1 else SharedInbox(inboxes)
            last = outboxes[0] if num_servers == 1 else SharedOutbox(outboxes)
            children: list[Child] = []
            stages: tuple[tuple[StageName, Any, tuple[Any, ...]], ...] = (
                ("talker", talker.main, (first, frames_out, *beats.values(), facts.get("talker", {}))),
                ("code2wav", code2wav.main, (frames_in, last, beats["code2wav"], facts.get("code2wav", {}))),
            )
            for stage, main, args in stages:
                child = await WORKERS.fork(stage, main, (config, *args), config.environment(), config.start_timeout_s)
                children.append(ours.enter_context(contextlib.closing(child)))
            return cls(config, model, endpoints, tuple(beats.values()), children, ours.pop_all())

    async def ready(self, timeout_s: float) -> None:
        """Wait until both have loaded. Raises EngineError with the reason as soon as one cannot."""
        loading = [asyncio.ensure_future(child.loaded()) for child in self.children]
        try:
            async with asyncio.timeout(timeout_s):
                loaded = await asyncio.gather(*loading)
        except TimeoutError:
            raise EngineError(f"the workers did not load the model within {timeout_s:g} s; see their log") from None
        finally:
            for each in loading:
                each.cancel()
            await asyncio.gather(*loading, return_exceptions=True)
        for child, facts in zip(self.children, loaded, strict=True):
            self.facts[child.name] = facts
            log.info("%s worker %d of %s is ready: %s", child.name, child.pid, self._model, facts)

    async def stop(self, grace_s: float) -> None:
        """Wait `grace_s` for the workers to exit by themselves, kill those that do not, and release everything."""
        with self._resources:
            for wait_s in (grace_s, None):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        for child in self.children:
                            await readable(child.pidfd)
                for child in self.children:
                    child.kill()
