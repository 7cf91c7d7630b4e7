"""When utterances of an open loop begin: a Poisson process that is the same in every run and every process."""

import hashlib
import math
from collections.abc import Iterator


def poisson_arrivals(rate_per_s: float, seed: int) -> Iterator[float]:
    """Seconds from the start of the load, rising without end.

    Pauses are exponential, each from a hash of the seed and its number, so no generator's version is part of a result.
    """
    now_s, number = 0.0, 0
    while True:
        digest = hashlib.sha256(f"sonorant-bench/poisson/{seed}/{number}".encode()).digest()
        uniform = int.from_bytes(digest[:7], "big") / 2**56
        now_s -= math.log1p(-uniform) / rate_per_s
        yield now_s
        number += 1
