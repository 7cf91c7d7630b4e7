"""When the utterances of an open loop begin: a Poisson process that is the same in every run and every process."""

import hashlib
import math
from collections.abc import Iterator


def poisson_arrivals(rate_per_s: float, seed: int) -> Iterator[float]:
    """Yield arrival times in seconds from the start of the load, without end.

    Pauses are exponential. Each comes from a hash of the seed and its number, so results do not depend on the version
    of a random generator.
    """
    now_s, number = 0.0, 0
    while True:
        digest = hashlib.sha256(f"sonorant-bench/poisson/{seed}/{number}".encode()).digest()
        uniform = int.from_bytes(digest[:7], "big") / 2**56
        now_s -= math.log1p(-uniform) / rate_per_s
        yield now_s
        number += 1
