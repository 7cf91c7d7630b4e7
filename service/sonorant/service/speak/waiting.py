"""Waits for a place in the engine, as it is full."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sonorant.engine import EngineOverloaded
from sonorant.service.speak.reservations import Reservation
from sonorant.tts.v1 import synthesis_pb2

TELL_EVERY_S = 1.0


async def open_in_turn(
    reservation: Reservation,
    open_stream: Callable[[], Awaitable[None]],
    wait_s: float,
    tell: Callable[[synthesis_pb2.Queued], Awaitable[None]] | None,
) -> None:
    """Open a stream as soon as there is a place for it. Raises EngineOverloaded if there is none within `wait_s`, and
    what `open_stream` raises for other reasons. `tell`: tells the client how long it may take."""
    now_s = asyncio.get_running_loop().time
    latest_s, tell_s = now_s() + wait_s, now_s() if tell else math.inf
    with reservation.waiting() as ticket:
        while now_s() < latest_s:
            if tell is not None and now_s() >= tell_s:
                num_ahead, expected_s = reservation.position(ticket)
                await tell(synthesis_pb2.Queued(num_ahead=num_ahead, expected_wait_ms=round(expected_s * 1000)))
                tell_s = now_s() + TELL_EVERY_S
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(latest_s, tell_s)):
                    await ticket.may_try.wait()
            if ticket.may_try.is_set():
                ticket.may_try.clear()
                with suppress(EngineOverloaded):
                    await open_stream()
                    return
        error = EngineOverloaded(f"no stream became free within {wait_s:.3g} s; try again later")
        error.retry_s = reservation.position(ticket)[1]
        raise error
