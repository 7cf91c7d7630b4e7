"""One worker pair in this process, with its owner: an `Engine` that tests can look into. Without pytest."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from sonorant.engine import Engine, EngineConfig, EngineState, SharedPairs, Work, shared_pairs
from sonorant.engine.serving.model import Model
from sonorant.engine.serving.owner_link import OwnerLink
from sonorant.engine.workers.worker_pair import WorkerPair


class OwnedEngine(Engine):
    """Closing it stops the workers, too. No pool warms it up."""

    owner: SharedPairs
    resources: AsyncExitStack

    @property
    def pair(self) -> WorkerPair:
        return self.owner._pairs[0]

    @property
    def encoder_pid(self) -> int | None:
        return self.owner._encoders.pid(0)

    async def close(self) -> None:
        async with self.resources:
            super().close()


async def start_engine(
    config: EngineConfig, on_state: Callable[[EngineState], None] = lambda state: None
) -> OwnedEngine:
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(shared_pairs([config], 1, "false"))
        await owner.start()
        link = await OwnerLink.open(owner.connect(0))
        stack.callback(link.close)
        model = Model.read(owner.configs[0])
        engine = OwnedEngine(owner.configs[0], model, lambda engine: on_state(engine.state), link)
        on_state(engine.state)
        engine.start()
        engine.owner = owner
        link.listen(engine.placement.place_waiting)
        engine.resources = stack.pop_all()
        return engine


async def work_when_idle(engine: Engine) -> Mapping[str, Work]:
    """Wait until the counters stand still: a step is counted only after its audio was sent."""
    before = None
    while before != (work := engine.stats().work):
        before = work
        await asyncio.sleep(0.3)
    return work
