"""Chooses the sizes that a worker pair's settings leave open, from the machine that the pair will run on."""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.errors import CheckpointError
from sonorant.engine.sizes import slots_of, with_sizes
from sonorant.engine.workers.card import find_card

log = logging.getLogger(__name__)


def sized(configs: Sequence[EngineConfig]) -> list[EngineConfig]:
    """Return `configs` with a number for every AUTO, and log the numbers. Blocks for some milliseconds."""
    found = []
    cards = [find_card(config.talker.device) for config in configs]
    devices = ["cuda:0" if config.talker.device in ("auto", "cuda") else config.talker.device for config in configs]
    for config, card, device in zip(configs, cards, devices, strict=True):
        card_slots = None
        if card is not None:
            with suppress(CheckpointError):  # the workers will report it
                card_slots = slots_of(card, load_checkpoint(config.model), devices.count(device))
        found.append(with_sizes(config, card_slots))
        if found[-1] != config:
            log.info("sizes for %s: %s", "the CPU" if card is None else card.name, sizes_text(found[-1]))
    return found


def threads_per_worker(configs: Sequence[EngineConfig]) -> int:
    """Return how many CPU threads each worker of these pairs gets if the settings leave that open: all together get one
    per core."""
    num_busy = sum(not config.is_standby for config in configs)
    return max(1, len(os.sched_getaffinity(0)) // (2 * num_busy))


def sizes_text(config: EngineConfig) -> str:
    return (
        f"num_slots {config.talker.num_slots}, max_queued_streams {config.talker.max_queued_streams}, "
        f"max_prefill_rows {config.talker.max_prefill_rows}, max_decode_batch {config.code2wav.max_decode_batch}"
    )
