"""Ids of streams and runs, which say the server process they belong to. No two are alike in the life of a server.

Server processes are numbered 0, 1, 2 ... When one dies, its replacement has the same number and the next generation.
"""

import itertools
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from sonorant.engine.types import Int64Array

MAX_SERVERS = 16  # each needs descriptors in every worker, see MAX_FDS of the fork server
GENERATIONS = 2**16
_SERVER_BIT, _GENERATION_BIT = 56, 40

Ids = TypeVar("Ids", int, Int64Array)


def new_ids(server: int = 0, generation: int = 0) -> Iterator[int]:
    """Return endless ids of a server process; they are those of no other server process or generation."""
    return itertools.count((server << _SERVER_BIT) + (generation % GENERATIONS << _GENERATION_BIT) + 1)


def server_of(ids: Ids) -> Ids:
    """Return the number of the server process to which an id belongs, or the numbers for an array of ids."""
    return np.right_shift(ids, _SERVER_BIT) if isinstance(ids, np.ndarray) else ids >> _SERVER_BIT
