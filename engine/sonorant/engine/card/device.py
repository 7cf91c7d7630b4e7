"""The card of a torch device, as the CUDA runtime describes it.

On torch's meta device there is no card, unless one is assumed: kernels are then listed for it, and not run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from sonorant.engine.card.card import Card, pretended
from sonorant.machine import free_memory_bytes

_META = torch.device("meta")
_assumed: dict[torch.device, Card] = {}


def card_of(device: torch.device) -> Card | None:
    """Return the card of a device; None if it has none. What is free on it, see `free_bytes`."""
    return _found(device) if device.type == "cuda" else _assumed.get(device)


@cache
def _found(device: torch.device) -> Card:
    return _asked(device)


def _asked(device: torch.device) -> Card:
    properties = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    capability = properties.major, properties.minor
    return pretended(Card.of(properties.name, capability, total, free, properties.multi_processor_count))


def free_bytes(device: torch.device) -> int:
    """How much memory of a CUDA device nobody has now, or of this machine and its container, in bytes."""
    if device.type == "cuda":
        return _asked(device).free_bytes
    return free_memory_bytes()


@contextmanager
def assumed(card: Card) -> Iterator[torch.device]:
    """Yield a device on which nothing is computed and nothing takes memory, and which has this card."""
    _assumed[_META] = card
    try:
        yield _META
    finally:
        del _assumed[_META]
