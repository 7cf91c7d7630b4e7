"""Completes the settings of worker pairs: sizes, shares of the machine, and the MPS daemon that they use."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.config import EngineConfig, MpsMode
from sonorant.engine.errors import CheckpointError
from sonorant.engine.workers.ahead import compiling
from sonorant.engine.workers.auto import sized, with_threads
from sonorant.engine.workers.mps import mps_for, this_machine
from sonorant.logs import start


@asynccontextmanager
async def prepared(configs: Sequence[EngineConfig], mps: MpsMode) -> AsyncIterator[list[EngineConfig]]:
    """Yield complete settings of one worker pair each, and run the MPS daemon that they need, if any.

    Raises CheckpointError if the checkpoints do not go together, or EngineError as `mps_for` does.
    """
    _check_same_codec([load_checkpoint(model) for model in {config.model: None for config in configs}])
    configs = with_threads(await asyncio.to_thread(sized, configs))
    start.phase("sizes")
    async with compiling(configs), mps_for(mps, configs, await asyncio.to_thread(this_machine)) as folder:
        if folder:
            start.phase("MPS")
        yield [
            dataclasses.replace(config, mps_pipe_directory=folder or config.mps_pipe_directory) for config in configs
        ]


def _check_same_codec(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise CheckpointError unless all checkpoints have one frame length and sample rate, as the service needs."""
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for what, ours, theirs in (
            ("Hz", first.codec.output_sample_rate, other.codec.output_sample_rate),
            ("samples per frame", first.codec.frame_samples, other.codec.frame_samples),
        ):
            if ours != theirs:
                raise CheckpointError(
                    f"{first.name} makes {ours} {what}, {other.name} {theirs}: serve them with separate servers"
                )
