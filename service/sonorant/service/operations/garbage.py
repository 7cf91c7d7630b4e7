"""Decides when the garbage collector runs: on the youngest objects four times a second, or sooner if there are many; on
all objects while nobody listens.

All audio waits while it runs. Python by itself starts it after some number of allocations, now and then on all objects:
with 1,000 sessions, that takes tenths of a second in the middle of their audio. Calls leave next to nothing for it, as
reference counting frees the rest, so it can wait for a good moment.
"""

import asyncio
import gc
import time
from collections.abc import Callable

LOOK_S = 0.025
YOUNG_S = 0.25  # between collections of young objects; most are gone by then and cost nothing
MOST_YOUNG = 5000  # with more young objects, collect sooner, so that thousands of new calls cause no long pause
IDLE_S = 60.0  # between full collections while nobody listens
BUSY_S = 3600.0  # between full collections at most, even while somebody listens


async def collect_garbage(is_idle: Callable[[], bool]) -> None:
    """Run the garbage collector instead of Python's own schedule, until cancelled."""
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
