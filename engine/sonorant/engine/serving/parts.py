"""Shares worker pairs out among several server processes, each of which starts an `EnginePool` with its part."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from sonorant.engine.config import EngineConfig, MpsMode, device_with_gpus
from sonorant.engine.serving.auto import sized, threads_per_worker
from sonorant.engine.serving.mps import mps_for, this_machine


@asynccontextmanager
async def shared_out(
    configs: Sequence[EngineConfig], num_parts: int, mps: MpsMode
) -> AsyncIterator[list[list[EngineConfig]]]:
    """Yield the pairs of each part, with all sizes chosen, and run the one MPS daemon that they need, if any.

    Each part is then started with `mps="false"`. Raises CheckpointError or EngineError as `EnginePool.start` does.
    """
    configs = await asyncio.to_thread(sized, configs)
    machine = await asyncio.to_thread(this_machine)
    async with mps_for(mps, configs, machine) as folder:
        if folder is not None:
            configs = [replace(config, mps_pipe_directory=folder) for config in configs]
        yield parts_of(configs, num_parts)


def parts_of(configs: Sequence[EngineConfig], num_parts: int) -> list[list[EngineConfig]]:
    """Deal out the pairs of each checkpoint in turn, and say which share of the machine each part may use."""
    parts: list[list[EngineConfig]] = [[] for _ in range(num_parts)]
    dealt: dict[Path, int] = {}
    for config in configs:
        number = dealt.get(config.model, 0)
        dealt[config.model] = number + 1
        parts[number % num_parts].append(config)
    threads = threads_per_worker(configs)
    devices = [[device_with_gpus(config.talker.device) for config in part] for part in parts]
    num_on = {device: sum(part.count(device) for part in devices) for part in devices for device in part}
    return [
        [
            replace(
                config.but(
                    cpu_threads=config.cpu_threads or threads,
                    # A pool shares its part among its own pairs.
                    kv_memory_share=config.talker.kv_memory_share * here.count(device) / num_on[device],
                ),
                gpu_share=1 / sum(device in part for part in devices),
            )
            for config, device in zip(part, here, strict=True)
        ]
        for part, here in zip(parts, devices, strict=True)
    ]
