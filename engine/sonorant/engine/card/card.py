"""A GPU, with all that sizes and the choice of kernels depend on. Pure.

A test may pretend another card, in the variable of `PRETEND_VARIABLE`: `capability=12.0 memory_gib=8`. What is not
named stays as it is, or follows from the capability.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

GIB = 2**30
PRETEND_VARIABLE = "SONORANT_PRETEND_CARD"

# Shared memory that one block may have, in KiB, by compute capability. Others have as much as the next lower one here.
_SHARED_KIB = {(7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99, (9, 0): 227, (10, 0): 227, (12, 0): 99}
LEAST_CAPABILITY = (8, 0)  # bfloat16, and Triton


@dataclass(frozen=True, slots=True)
class Card:
    """`free_bytes`: what nobody has, when this was asked. `architecture`: what code is compiled for, as `sm_90a`."""

    name: str
    memory_bytes: int
    free_bytes: int
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int  # that one block may have
    has_clusters: bool  # blocks that reach each other's shared memory
    has_dependent_launch: bool  # a kernel may start before the one in front of it has ended
    has_warpgroups: bool  # matrix instructions of four warps together, which only Hopper has
    architecture: str

    @classmethod
    def of(
        cls,
        name: str,
        capability: tuple[int, int],
        memory_bytes: int,
        free_bytes: int | None = None,
        multiprocessors: int = 1,
    ) -> "Card":
        """A card with all that cards of its capability have. Without `free_bytes`, all of its memory is free."""
        shared = [_SHARED_KIB[each] for each in sorted(_SHARED_KIB) if each <= capability]
        return cls(
            name=name,
            memory_bytes=memory_bytes,
            free_bytes=memory_bytes if free_bytes is None else free_bytes,
            capability=capability,
            multiprocessors=multiprocessors,
            shared_bytes=(shared[-1] if shared else 48) * 1024,
            has_clusters=capability >= (9, 0),
            has_dependent_launch=capability >= (9, 0),
            has_warpgroups=capability[0] == 9,
            architecture=f"sm_{capability[0]}{capability[1]}" + ("a" if capability >= (9, 0) else ""),
        )

    @property
    def why_unfit(self) -> str:
        """Why nothing runs on this card, and what to do; "" if it can be used."""
        if self.capability >= LEAST_CAPABILITY:
            return ""
        major, minor = self.capability
        return (
            f"{self.name} has compute capability {major}.{minor}, and 8.0 or later is needed (A100, RTX 30 and "
            "whatever came after them); use --device cpu or another GPU"
        )


def gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.1f} GiB"


def pretended(card: Card, environment: Mapping[str, str] = os.environ) -> Card:
    """Return the card that the environment pretends in place of this one, or this one.

    Code is still compiled for the real one. Of the memory beyond the pretended total, nothing is free. Raises
    ValueError for what cannot be pretended.
    """
    wanted = dict(each.partition("=")[::2] for each in environment.get(PRETEND_VARIABLE, "").split())
    if not wanted:
        return card
    found = card
    if capability := wanted.pop("capability", ""):
        major, _, minor = capability.partition(".")
        of_such = Card.of(f"{card.name}, as {capability}", (int(major), int(minor)), card.memory_bytes)
        found = replace(
            of_such,
            free_bytes=card.free_bytes,
            multiprocessors=card.multiprocessors,
            architecture=card.architecture,
        )
    if memory_gib := wanted.pop("memory_gib", ""):
        total = min(card.memory_bytes, int(float(memory_gib) * GIB))
        found = replace(found, memory_bytes=total, free_bytes=max(0, card.free_bytes - (card.memory_bytes - total)))
    if shared_kib := wanted.pop("shared_kib", ""):
        found = replace(found, shared_bytes=int(shared_kib) * 1024)
    found = replace(
        found,
        has_clusters=found.has_clusters and wanted.pop("clusters", "yes") == "yes",
        has_dependent_launch=found.has_dependent_launch and wanted.pop("dependent_launch", "yes") == "yes",
    )
    if wanted:
        raise ValueError(f"{PRETEND_VARIABLE}: {', '.join(wanted)} cannot be pretended")
    return found
