"""The life of a process that serves: its limits, its log, what signals do, what it announces, and its exit code."""

import asyncio
import json
import logging
import resource
import signal
from collections.abc import Awaitable, Callable
from contextlib import closing

import uvloop

from sonorant import logs
from sonorant.hosting.streams import STDOUT_FILENO, open_standard_streams
from sonorant.logs.output import Output

log = logging.getLogger(__name__)

Announce = Callable[..., None]

ORPHAN_GRACE_S = 5.0  # for running calls, once the process that started this one is gone
FEW_FILES = 4096  # with fewer, connections are refused that the settings allow


def announce(event: str, **more: object) -> None:
    """Print an event as one line of JSON on stdout, for the program or person that started the process."""
    line = json.dumps({"event": event, **more}) + "\n"
    try:
        with closing(Output(STDOUT_FILENO)) as stdout:
            stdout.write(line.encode())  # in a single write, because several processes may share stdout
    except OSError as error:  # its disk is full, or its reader is gone or does not read
        log.error("the event %r cannot be told on stdout: %s", event, error.strerror)


class Signals:
    """The first signal drains, the second one stops the process at once. While it loads, the first one stops it.

    The end of its terminal (SIGHUP) is a first signal, but never the second: the shell and the kernel both tell of it.
    """

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
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # which is what nohup asks for
            self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        if lifeline is not None:
            self._loop.add_reader(lifeline, self._on_orphaned, lifeline)

    def _on_signal(self) -> None:
        if self.is_loading or self.drain.is_set():
            self._task.cancel()
        self.drain.set()

    def _on_hangup(self) -> None:
        if not self.drain.is_set():
            self._on_signal()

    def _on_orphaned(self, lifeline: int) -> None:
        self._loop.remove_reader(lifeline)
        log.error("the process that started this one is gone; this one ends")
        self._on_signal()
        self._loop.call_later(ORPHAN_GRACE_S, self._task.cancel)


def run_to_end(
    serve: Callable[[Signals], Awaitable[int]],
    *filters: Callable[[logging.LogRecord], bool],
    lifeline: int | None = None,
) -> int:
    """Run `serve` to its end, and return the exit code. `filters`: of the log. `lifeline`: see `Signals`."""
    open_standard_streams()
    logs.set_up(*filters)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection takes one, and shells allow few
    if lifeline is None and 0 <= most < FEW_FILES:  # the processes that this one starts have the same limit
        log.warning(
            "at most %d files may be open in each process, and a connection is one: connections beyond that are "
            "refused; raise the hard limit (`ulimit -Hn`, LimitNOFILE in a unit, --ulimit nofile of Docker) to %d or "
            "more",
            most,
            FEW_FILES,
        )

    async def to_the_end() -> int:
        signals = Signals(lifeline)
        try:
            return await serve(signals)
        except asyncio.CancelledError:
            if not signals.is_loading:
                raise
            log.info("stopped by a signal before it served")
            return 0

    try:
        return uvloop.run(to_the_end())
    except asyncio.CancelledError:
        log.warning("stopped at once by a signal")
        return 1
