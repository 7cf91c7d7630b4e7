"""One worker pair in this process, with its owner: an `Engine` that tests can look into. Without pytest."""

from collections.abc import Callable
from contextlib import AsyncExitStack

from sonorant.engine import Engine, EngineConfig, EngineState, SharedPairs, shared_pairs
from sonorant.engine.serving.engine import Texts
from sonorant.engine.serving.owner_link import OwnerLink
from sonorant.engine.workers.supervisor import Supervisor


class OwnedEngine(Engine):
    """Closing it stops the workers, too. No pool warms it up."""

    owner: SharedPairs
    resources: AsyncExitStack

    @property
    def supervisor(self) -> Supervisor:
        return self.owner._pairs[0].supervisor

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
        engine = OwnedEngine.start(owner.configs[0], Texts.read(config.model), on_state, link)
        assert isinstance(engine, OwnedEngine)
        engine.owner = owner
        link.listen(engine.placement.on_room)
        engine.resources = stack.pop_all()
        return engine
