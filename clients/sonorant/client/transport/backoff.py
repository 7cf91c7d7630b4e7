"""How long to wait between attempts to reach a server. Pure, except that the delays are random."""

import random
from collections.abc import Iterator

FIRST_S = 0.02
LONGEST_S = 0.5


def delays_s() -> Iterator[float]:
    """Yield 20 ms, then twice as much each time up to half a second, each changed at random by up to a quarter, so that
    a thousand clients of one dead server do not come back in the same instant."""
    delay_s = FIRST_S
    while True:
        yield delay_s * random.uniform(0.75, 1.25)
        delay_s = min(2 * delay_s, LONGEST_S)
