"""Chooses the sizes that a worker pair's settings leave open, from the machine that the pair will run on."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from sonorant.engine.card.card import Card, gib
from sonorant.engine.card.driver import find_card
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig, device_with_gpus
from sonorant.engine.errors import CheckpointError, EngineError
from sonorant.engine.sizes import (
    MOST_WEIGHTS,
    SMALLEST_CARD_SLOTS,
    allowed_bytes,
    frame_weights,
    holds_standby,
    missing_bytes,
    slots_of,
    with_sizes,
)
from sonorant.machine import num_cores

log = logging.getLogger(__name__)

MOSTLY_FREE = 0.95  # of a card's memory: nobody else uses it
FEW_CORES = 4  # with more, talker and Code2Wav beside each other are as fast
LOOK_AGAIN_S, UNCHANGED_LOOKS = 0.5, 4


def sized(configs: Sequence[EngineConfig]) -> list[EngineConfig]:
    """Return `configs` with a number for every AUTO and the memory that each pair may take, and log the numbers. Pairs
    that want a standby have one behind them where it fits. Blocks for some milliseconds. Raises EngineError for a card
    that cannot be used, or has too little memory."""
    devices = [device_with_gpus(config.talker.device) for config in configs]
    cards = {device: _settled_card(device) for device in dict.fromkeys(devices)}
    found = [
        _for_the_cpu(config) if card is None else _for_card(config, card, devices.count(device))
        for config, device in zip(configs, devices, strict=True)
        for card in [cards[device]]
    ]
    return [each for config in found for each in _with_standby(config, is_alone=len(found) == 1)]


def _with_standby(config: EngineConfig, *, is_alone: bool) -> list[EngineConfig]:
    """Return the pair, and a standby if it wants one and both fit; `is_alone`: whether no other pair takes memory."""
    wants, config = config.wants_standby, replace(config, wants_standby=False)
    if not wants or not config.memory_bytes:  # on the CPU
        return [config]
    num_slots = config.talker.num_slots
    if not is_alone or not holds_standby(config.memory_bytes, load_checkpoint(config.model), num_slots):
        log.info(
            "no standby: the GPU's memory has no room for a second pair of %d slots; if workers are killed, listeners "
            "wait until they are replaced",
            num_slots,
        )
        return [config]
    log.info("with a standby: a second pair of %d slots, which takes over if workers are killed", num_slots)
    pair = replace(config, memory_bytes=config.memory_bytes // 2)
    return [pair, replace(pair, is_standby=True)]


def _settled_card(device: str) -> Card | None:
    """Return the card when no more of its memory becomes free: the workers of a server that was killed a moment ago
    hold theirs for a second or two, and this server would have few slots for good."""
    card, num_unchanged = find_card(device), 0
    while card is not None and card.free_bytes < MOSTLY_FREE * card.memory_bytes and num_unchanged < UNCHANGED_LOOKS:
        time.sleep(LOOK_AGAIN_S)
        before, card = card, find_card(device)
        num_unchanged = 0 if card is not None and card.free_bytes > before.free_bytes else num_unchanged + 1
    return card


def _for_the_cpu(config: EngineConfig) -> EngineConfig:
    found = with_sizes(config, None)
    if found != config:
        log.info("sizes for the CPU: %s", sizes_text(found))
    return found


def _for_card(config: EngineConfig, card: Card, num_sharing: int) -> EngineConfig:
    """`num_sharing`: pairs on this card, which share its memory evenly."""
    if card.why_unfit:
        raise EngineError(card.why_unfit)
    memory_bytes = allowed_bytes(card, config.gpu_memory_gib) // num_sharing
    try:
        checkpoint = load_checkpoint(config.model)
    except CheckpointError:  # the workers will report it
        return with_sizes(config, SMALLEST_CARD_SLOTS)
    room = f"{gib(memory_bytes)} of {card.name} ({gib(card.free_bytes)} of its {gib(card.memory_bytes)} are free"
    room += f", --gpu-memory-gib is {config.gpu_memory_gib:g}" if config.gpu_memory_gib else ""
    room += f", for {num_sharing} pairs)" if num_sharing > 1 else ")"
    if missing := missing_bytes(memory_bytes, checkpoint, config):
        raise EngineError(
            f"{checkpoint.name} needs {gib(memory_bytes + missing)} and may take {room}: stop other programs on the "
            "GPU, allow more with --gpu-memory-gib, or use fewer pairs, a smaller checkpoint or a lower --max-context"
        )
    found = replace(with_sizes(config, slots_of(memory_bytes, checkpoint)), memory_bytes=memory_bytes)
    log.info("sizes for %s: %s", room, sizes_text(found))
    return found


def with_threads(configs: Sequence[EngineConfig]) -> list[EngineConfig]:
    """Return `configs` with a number of CPU threads for each worker of these pairs: where the settings leave it open,
    all together get one per core. Where one large model speaks on few cores, each worker gets as many as there are, and
    they take turns."""
    num_busy, cores = sum(not config.is_standby for config in configs), num_cores()
    is_in_turns = num_busy == 1 and cores <= FEW_CORES and is_large_on_the_cpu(configs[0])
    threads = cores if is_in_turns else max(1, cores // (2 * num_busy))
    return [config.but(cpu_threads=config.cpu_threads or threads) for config in configs]


def is_large_on_the_cpu(config: EngineConfig) -> bool:
    """Whether both workers are on the CPU, and the talker is no small model."""
    devices = {device_with_gpus(config.talker.device), device_with_gpus(config.code2wav.device)}
    if any(find_card(device) is not None for device in devices):
        return False
    return frame_weights(load_checkpoint(config.model)) > MOST_WEIGHTS


def sizes_text(config: EngineConfig) -> str:
    return (
        f"num_slots {config.talker.num_slots}, max_queued_streams {config.talker.max_queued_streams}, "
        f"max_prefill_rows {config.talker.max_prefill_rows}, max_decode_batch {config.code2wav.max_decode_batch}"
    )
