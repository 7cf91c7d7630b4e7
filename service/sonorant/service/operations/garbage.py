"""When the garbage collector runs: the youngest objects four times a second or when they are many, all of them while
nobody listens.

Everybody's audio waits while it runs. Left to itself it looks at all that was made since it ran last whenever a number
of allocations is exceeded, or at everything there is: tenths of a second with 1,000 sessions, in the middle of their
audio. Calls leave next to nothing for it (reference counting frees the rest), so it can wait for a good moment.
"""

import asyncio
import gc
import time
from collections.abc import Callable

LOOK_S = 0.025
YOUNG_S = 0.25  # what is gone by then, as most is, costs nothing
MOST_YOUNG = 5000  # objects; more are looked at sooner, so that calls that come by the thousand are no pause for others
IDLE_S = 60.0  # between full collections while nobody listens
BUSY_S = 3600.0  # and at the latest, whoever listens


async def collect_garbage(is_idle: Callable[[], bool]) -> None:
    """In place of Python's own decisions, until cancelled."""
    was_enabled = gc.isenabled()
    gc.disable()
    young_s = all_s = time.monotonic()
    try:
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = time.monotonic()
            if now_s - young_s < YOUNG_S and gc.get_count()[0] < MOST_YOUNG:
                continue
            young_s = now_s
            if now_s - all_s > (IDLE_S if is_idle() else BUSY_S):
                gc.collect()
                all_s = time.monotonic()
            else:
                gc.collect(0)
    finally:
        if was_enabled:
            gc.enable()
