"""Ids of streams and runs, which say the front they belong to. No two are alike in the life of a server.

A front is a service process that uses the workers, perhaps beside others: fronts 0, 1, 2 ... When one dies, the process
that replaces it has the same number and the next generation.
"""

import itertools
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from sonorant.engine.types import Int64Array

MAX_FRONTS = 16  # each needs descriptors in every worker, see MAX_FDS of the fork server
GENERATIONS = 2**16
_FRONT_BIT, _GENERATION_BIT = 56, 40

Ids = TypeVar("Ids", int, Int64Array)


def new_ids(front: int = 0, generation: int = 0) -> Iterator[int]:
    """Return endless ids of a front; they are those of no other front or generation."""
    return itertools.count((front << _FRONT_BIT) + (generation % GENERATIONS << _GENERATION_BIT) + 1)


def front_of(ids: Ids) -> Ids:
    """Return the number of the front to which an id belongs, or the numbers for an array of ids."""
    return np.right_shift(ids, _FRONT_BIT) if isinstance(ids, np.ndarray) else ids >> _FRONT_BIT
