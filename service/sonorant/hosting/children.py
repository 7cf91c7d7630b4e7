"""Child processes that serve the same, kept running until the drain.

A child gets its settings on stdin and drains when that closes, however this process ends. It tells on stdout, in lines
of JSON, what happens.
"""

import asyncio
import json
import logging
import pickle
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from sonorant.machine import num_cores

log = logging.getLogger(__name__)

# Before the start that follows the first, second, ... failure in a row. After more of them it is the last of these, but
# only while another process serves: if none does, all end, and the process manager may start anew.
START_DELAYS_S = (0.0, 1.0, 2.0, 5.0)
HEALTHY_AFTER_S = 60.0  # a process that lived for so long begins to count anew
STOP_TIMEOUT_S = 20.0  # beyond what calls get; afterwards a process is killed


# The workers, gRPC's threads and the rest of the machine need cores, too.
CORES_PER_PROCESS, MOST_PROCESSES = 2, 8


def processes_of_cores() -> int:
    """Return how many processes that serve the same a machine has room for."""
    return min(MOST_PROCESSES, max(1, num_cores() // CORES_PER_PROCESS))


class ProcessEnded(Exception):
    """A process cannot be kept running."""


class Children:
    """Subclasses say how a process is started, what its events mean, and what to do at its end."""

    def __init__(self, what: str, num: int, drain: asyncio.Event, grace_s: float) -> None:
        """`what`: their name in logs. `grace_s`: what calls get after the drain."""
        self._what = what
        self._num = num
        self._drain = drain
        self._stop_timeout_s = grace_s + STOP_TIMEOUT_S
        self.num_replaced = 0  # how often a process was started in the place of one that had ended
        self._served: set[int] = set()  # those that have served at least once
        self._serving: set[int] = set()

    async def start(self, number: int) -> Process:
        """Raises OSError."""
        raise NotImplementedError

    async def on_event(self, number: int, pid: int, told: dict[str, Any]) -> None:
        """For one that tells that it serves, `serves` has to be called."""
        raise NotImplementedError

    def serves(self, number: int) -> None:
        self._served.add(number)
        self._serving.add(number)

    def on_end(self, number: int, pid: int) -> None:
        """A process has ended, in whatever way."""

    def check(self) -> None:
        """Raise ProcessEnded if it is no use to start another process in the place of one that has ended."""

    async def prepare(self, number: int) -> None:
        """Called before another process is started in the place of one that has ended."""

    async def run(self, beside: Coroutine[Any, Any, None] | None = None) -> list[int]:
        """Keep all processes running until the drain; return their exit codes. Raises ProcessEnded. Cancelling this
        stops all processes at once, and so does an error of what is done `beside` it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                kept = [tasks.create_task(self._keep(number)) for number in range(self._num)]
                working = tasks.create_task(beside) if beside is not None else None
                await asyncio.wait(kept)
                if working is not None:
                    working.cancel()
        except ExceptionGroup as ended:  # not `except*`: Python 3.11.2 makes a group of what is raised there
            expected, _ = ended.split(ProcessEnded)
            raise (expected or ended).exceptions[0] from None
        return [task.result() for task in kept]

    async def _keep(self, number: int) -> int:
        num_failures = 0  # in a row
        while True:
            began_s = time.monotonic()
            code = await self._run(number)
            if self._drain.is_set():
                return code
            self.check()
            num_failures = 1 if time.monotonic() - began_s > HEALTHY_AFTER_S else num_failures + 1
            keeps_failing = num_failures > len(START_DELAYS_S)
            refuses = code >= 0 and number not in self._served  # its log says why; one that was killed cannot say
            if refuses or (keeps_failing and not self._serving):
                raise ProcessEnded(f"{self._what} {number + 1} ended with status {code}, see its log")
            log.error("%s %d ended with status %d; starting it again", self._what, number + 1, code)
            await self.prepare(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(START_DELAYS_S[min(num_failures, len(START_DELAYS_S)) - 1]):
                    await self._drain.wait()
            if self._drain.is_set():
                return code
            self.num_replaced += 1

    async def _run(self, number: int) -> int:
        """Run one process to its end, which the drain brings about; return its exit code."""
        try:
            process = await self.start(number)
        except OSError as error:
            log.error("cannot start %s %d: %s", self._what, number + 1, error)
            return 1
        ending = asyncio.create_task(self._end_at_drain(process))
        try:
            async for told in _events(process):
                await self.on_event(number, process.pid, told)
            return await process.wait()
        finally:
            self._serving.discard(number)
            ending.cancel()
            await self._stop(process)
            self.on_end(number, process.pid)

    async def _end_at_drain(self, process: Process) -> None:
        await self._drain.wait()
        _terminate(process)

    async def _stop(self, process: Process) -> None:
        """End a process that still runs: in order, or at once if it is ending in order already."""
        _terminate(process)
        try:
            async with asyncio.timeout(self._stop_timeout_s):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def start_module(
    module: str, *arguments: str, settings: object, environment: dict[str, str], pass_fds: Sequence[int] = ()
) -> Process:
    """Start a process in a session of its own, so that only this process gets the signals of a terminal.

    `environment`: uvloop takes no other kind of mapping."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=PIPE,
        stdout=PIPE,
        env=environment,
        start_new_session=True,
        pass_fds=pass_fds,
    )
    assert process.stdin is not None
    with suppress(OSError, RuntimeError):  # it has ended already; RuntimeError is what uvloop says then
        process.stdin.write(pickle.dumps(settings))  # and left open: it closes when this process ends, however it does
    return process


async def _events(process: Process) -> AsyncIterator[dict[str, Any]]:
    assert process.stdout is not None
    async for line in process.stdout:
        yield json.loads(line)


def _terminate(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
