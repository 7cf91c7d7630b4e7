"""Uses worker pairs from the process that owns them: for the doctor, measurements and tests, which need no server.

Owner and user talk as in two processes.
"""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from sonorant.engine.config import EngineConfig, MpsMode
from sonorant.engine.owner.shared_pairs import SharedPairs, shared_pairs
from sonorant.engine.serving.pool import EnginePool
from sonorant.engine.workers.endpoint import EngineState


class EngineHere(EnginePool):
    owner: SharedPairs


async def start_here(
    configs: Sequence[EngineConfig],
    on_state: Callable[[EngineState], None] = lambda state: None,
    *,
    mps: MpsMode = "false",
) -> EngineHere:
    """Start a worker pair for each config and return when all have loaded; see `EnginePool.join`.

    `mps` says whether to start a CUDA MPS daemon, see `plan_mps`. Raises CheckpointError or EngineError if a pair
    cannot load, and leaves nothing running.
    """
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(shared_pairs(configs, 1, mps))
        await owner.start()
        pool = await EngineHere.join(owner.configs, owner.connect(0), on_state, stack)
        pool.owner = owner
        return pool
