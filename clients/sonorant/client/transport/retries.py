"""How long a call may take, and when it is made again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import grpc

from sonorant.client.errors import (
    ENGINE_STARTING,
    ServerBusy,
    ServerUnavailable,
    SpeechError,
    TimedOut,
    from_rpc_error,
)
from sonorant.client.transport.backoff import delays_s
from sonorant.client.transport.outage import RECONNECT_S, STARTING_S

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """When to make a call again. A call whose connection is lost is made again in any case, as it costs nothing, and
    so is, for two minutes, one whose server is starting."""

    for_s: float = RECONNECT_S  # how long to go on
    when_busy: bool = False  # also while the server is full, when it says that there may be room again
    when_down: bool = False  # also while no server answers at all


async def call_with_retries(call: Callable[[], Awaitable[T]], target: str, retry: Retry, num_tries_when_down: int) -> T:
    """Return what the call returns. Raises a SpeechError once it is not to be made again.

    `num_tries_when_down`: how often it is tried if no server answers, without `Retry.when_down`.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    until_s, is_starting = began_s + retry.for_s, False
    for number, delay_s in enumerate(delays_s(), 1):
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            known = from_rpc_error(error, target)
            if known.reason == ENGINE_STARTING:  # what comes next may be the loss of the port that said so
                is_starting = True
                until_s = max(until_s, min(loop.time() + retry.for_s, began_s + STARTING_S))
            wait_s = _wait_s(error, known, retry, delay_s, number >= num_tries_when_down and not is_starting)
            if wait_s is None or loop.time() + wait_s > until_s:
                raise known from None
        await asyncio.sleep(wait_s)
    raise AssertionError("delays never end")


def _wait_s(
    error: grpc.aio.AioRpcError, known: SpeechError, retry: Retry, delay_s: float, was_tried: bool
) -> float | None:
    """Return how long to wait before the next try; None: there is to be none."""
    if isinstance(known, ServerBusy):
        return max(delay_s, known.retry_after_s or 0.0) if retry.when_busy else None
    if not isinstance(known, ServerUnavailable):
        return None
    is_down = error.code() is grpc.StatusCode.UNAVAILABLE
    return None if is_down and was_tried and not retry.when_down else delay_s


@asynccontextmanager
async def time_limit(timeout_s: float | None, target: str, until_s: float | None = None) -> AsyncIterator[None]:
    """Raise TimedOut if the block takes longer; None = it may take any time. `until_s`: the end of that time on the
    event loop's clock, if it began before the block."""
    if until_s is None and timeout_s is not None:
        until_s = asyncio.get_running_loop().time() + timeout_s
    try:
        async with asyncio.timeout_at(until_s):
            yield
    except TimeoutError:
        if timeout_s is None:
            raise
        message = f"the server at {target} did not answer within the call's {timeout_s:g} s"
        raise TimedOut(grpc.StatusCode.DEADLINE_EXCEEDED, message) from None
