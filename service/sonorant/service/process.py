"""The life of a process of the server: its limits, its log, what signals do, and its exit code."""

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Awaitable, Callable

import uvloop

from sonorant import logs
from sonorant.engine import EngineError
from sonorant.service.log_filters import LOG_FILTERS

log = logging.getLogger("sonorant.service")

# How long a busy thread, such as Explain's, may hold the interpreter while the event loop wants it. The loop releases
# the interpreter several times per turn, so Python's default of 5 ms would stretch turns to 10 to 20 ms meanwhile.
SWITCH_S = 0.0005
ORPHAN_GRACE_S = 5.0  # for running calls, once the owner is gone


class Signals:
    """The first signal drains, the second one stops the process at once. While it loads, the first one stops it."""

    def __init__(self, lifeline: int | None = None) -> None:
        """`lifeline`: a file descriptor that ends with the process that started this one, which drains then."""
        self.drain = asyncio.Event()
        self.is_loading = True
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal)
        if lifeline is not None:
            self._loop.add_reader(lifeline, self._on_orphaned, lifeline)

    def _on_signal(self) -> None:
        if self.is_loading or self.drain.is_set():
            self._task.cancel()
        self.drain.set()

    def _on_orphaned(self, lifeline: int) -> None:
        self._loop.remove_reader(lifeline)
        log.error("the process that keeps the workers is gone; this one ends")
        self._on_signal()
        self._loop.call_later(ORPHAN_GRACE_S, self._task.cancel)


def run_to_end(
    serve: Callable[[Signals], Awaitable[int]], expected: tuple[type[Exception], ...], lifeline: int | None = None
) -> int:
    """Run `serve` to its end, and return the exit code. Of the `expected` errors only the message is logged."""
    logs.set_up(*LOG_FILTERS)
    sys.setswitchinterval(SWITCH_S)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection takes one, and shells allow few

    async def to_the_end() -> int:
        return await serve(Signals(lifeline))

    try:
        return uvloop.run(to_the_end())
    except asyncio.CancelledError:
        log.warning("stopped at once by a signal")
    except EngineError as error:
        log.error("cannot start the engine: %s", error)
    except expected as error:
        log.error("%s", error)
    return 1
