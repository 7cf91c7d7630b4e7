"""Keeps a pair of workers running: starts them, watches them, replaces them, stops them.

Workers that replace others get new rings. Knows nothing of streams and their records: it says when everything sent so
far is lost.
"""

import asyncio
import contextlib
import logging
import math
import os
import time
from typing import Protocol

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.channel import PeerGone
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.fork_server import WORKERS
from sonorant.engine.ipc.messages import Shutdown
from sonorant.engine.workers.endpoint import EngineState, Facts
from sonorant.engine.workers.ring_sizes import RingSizes
from sonorant.engine.workers.workers import Workers

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 5.0  # for workers to exit by themselves
# Before the restart after the first, second, ... failure in a row; after one more there is no restart.
RESTART_DELAYS_S = (0.0, 0.5, 1.0, 2.0)
HEALTHY_AFTER_S = 60.0  # after workers were up for so long, failures are counted from zero
START_AGAIN_S = 1.0  # between attempts while the system lacks files or memory to start workers
NEIGHBOUR_S = 2.0  # after a worker has left in order, wait so long for the death of its neighbour, which explains it
JUDGE_TIMEOUT_S = 5.0  # for server processes to say which of their streams ran with workers that have died
SPARE_FILES = 32  # starting a pair needs about 25


class PairOwner(Protocol):
    def on_state(self, pair: "WorkerPair", reason: str) -> None:
        """The pair has entered its present state."""

    def judge(self, pair: "WorkerPair", *, must: bool) -> None:
        """Call `WorkerPair.judge` if the workers can be judged; with `must` in any case, as JUDGE_TIMEOUT_S is over."""


class SpareFiles:
    """Reserves open files, so that workers can be replaced even when this process has reached its limit."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def open(self) -> None:
        """Reserve SPARE_FILES, or as many as the system still gives."""
        with contextlib.suppress(OSError):
            while len(self._fds) < SPARE_FILES:
                self._fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


class WorkerPair:
    """Keeps a worker pair running, for one server process or more. `owner` is told in the event loop's thread.

    At RESTARTING, FAILED and CLOSED everything sent so far is lost and will not be answered, and the ends of the rings
    must not be used any more.
    """

    def __init__(self, number: int, config: EngineConfig, num_servers: int, owner: PairOwner) -> None:
        checkpoint = load_checkpoint(config.model)
        self.number = number
        self.config = config
        self.is_standby = config.is_standby
        self.state = EngineState.STARTING
        self.num_restarts = 0  # how often workers went down and others were to take their place
        self.workers: Workers | None = None  # the present ones
        self._name = checkpoint.name
        self._sizes = RingSizes.of(config, checkpoint)
        self._num_servers = num_servers
        self._owner = owner
        self._last_facts: Facts = {}  # facts of the last workers that loaded
        self._down: asyncio.Future[str]  # gets the reason when the present workers go down
        self._health_check: asyncio.TimerHandle
        self._ready_s = math.inf  # when the last workers came up
        self._judged = asyncio.Event()  # since the last failure
        self._is_forgiven = False
        self._spare_files = SpareFiles()
        self._holds = contextlib.ExitStack()  # the fork server and spare files, while workers may be needed
        self._task: asyncio.Task[None] | None = None

    async def start(self, known: Facts | None = None) -> None:
        """Start the workers and wait until they have loaded. If they cannot, raises EngineError and leaves nothing.

        `known`: the facts of workers with the same checkpoint and card, so that nothing is measured again."""
        self._last_facts = known or {}
        with contextlib.ExitStack() as undo:
            WORKERS.hold()
            undo.callback(WORKERS.release)
            undo.callback(self._spare_files.close)
            await self._bring_up(is_patient=False)
            self._holds = undo.pop_all()
        self._task = asyncio.create_task(self._keep_up(), name="worker pair")

    def judge(self, *, is_forgiven: bool) -> None:
        """Note whether the present failure counts against the workers. New ones are started after this."""
        self._is_forgiven = is_forgiven
        self._judged.set()

    def enter(self, state: EngineState, reason: str) -> None:
        self.state = state
        self._owner.on_state(self, reason)

    async def close(self) -> None:
        """Stop the workers. Nobody but this may write on their rings any more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self.enter(EngineState.CLOSED, "the engine is closed")
        if self.workers is not None:
            outbox = self.workers.endpoints[0].outbox
            outbox.go_on()  # a server process has written here until now
            with contextlib.suppress(PeerGone):
                outbox.try_publish([Shutdown()])
            await self._take_down(STOP_TIMEOUT_S)
        self._holds.close()

    async def _keep_up(self) -> None:
        try:
            reason = await self._replace_workers()
        except Exception as error:
            log.exception("the workers of %s are not replaced any more, after an internal error", self._name)
            reason = f"{type(error).__name__} while replacing workers; see the log"
        self._holds.close()
        self.enter(EngineState.FAILED, reason)

    async def _replace_workers(self) -> str:
        """Replace the workers whenever they go down. Return the last reason after too many failures in a row."""
        num_failures = 0  # in a row, including failures to load, however long loading took
        reason = await self._down
        while True:
            log.error("%s; restarting both workers", reason)
            self.num_restarts += 1
            if time.monotonic() - self._ready_s > HEALTHY_AFTER_S:
                num_failures = 0
            self._judged.clear()
            self.enter(EngineState.RESTARTING, reason)
            if self.workers is not None:
                await self._take_down(grace_s=0)
            try:
                async with asyncio.timeout(JUDGE_TIMEOUT_S):
                    await self._judged.wait()
            except TimeoutError:
                self._owner.judge(self, must=True)
            num_failures += not self._is_forgiven
            if num_failures > len(RESTART_DELAYS_S):
                log.error("%d failures in a row: giving up", num_failures)
                return reason
            await asyncio.sleep(RESTART_DELAYS_S[max(0, num_failures - 1)])
            try:
                await self._bring_up(is_patient=True)
                reason = await self._down
            except EngineError as error:
                reason = str(error)

    async def _bring_up(self, *, is_patient: bool) -> None:
        """Start workers. Raises EngineError if they cannot load, or if the system lacks the files or memory to start
        them, for which it waits with `is_patient`."""
        self._ready_s = math.inf
        while True:
            self._spare_files.close()  # in case all other files are in use
            try:
                workers = await Workers.start(self.config, self._name, self._sizes, self._last_facts, self._num_servers)
                break
            except OSError as error:
                message = f"cannot start workers: {error}; allow more open files and processes, or free memory"
                if not is_patient:
                    raise EngineError(message) from error
                log.error("%s; trying again", message)
            finally:
                self._spare_files.open()
            await asyncio.sleep(START_AGAIN_S)
        try:
            await workers.ready(self.config.start_timeout_s)
        except BaseException:
            await workers.stop(grace_s=0)
            raise
        loop = asyncio.get_running_loop()
        self.workers, self._last_facts = workers, workers.facts
        self._down = loop.create_future()
        self._ready_s = time.monotonic()
        for child in workers.children:
            loop.add_reader(child.pidfd, self._died, child)
        self._health_check = loop.call_later(workers.health_check_s, self._check_health)
        self.enter(EngineState.READY, "")

    async def _take_down(self, grace_s: float) -> None:
        assert self.workers is not None
        workers, self.workers = self.workers, None
        loop = asyncio.get_running_loop()
        for child in workers.children:
            loop.remove_reader(child.pidfd)
        self._health_check.cancel()
        await workers.stop(grace_s)

    def _died(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(child.pidfd)
        code = child.wait()
        reason = f"the {child.name} worker {child.pid} died (exit code {code})"
        if code:
            self.report_down(reason)
        else:  # it left because its neighbour is gone, whose death is reported in a moment and says more
            loop.call_later(NEIGHBOUR_S, self.report_down, reason, self._down)

    def _check_health(self) -> None:
        assert self.workers is not None
        for watch in self.workers.watches:
            if complaint := watch.complaint():
                self.report_down(complaint)
        interval_s = self.workers.health_check_s
        self._health_check = asyncio.get_running_loop().call_later(interval_s, self._check_health)

    def report_down(self, reason: str, down: "asyncio.Future[str] | None" = None) -> None:
        """Have workers replaced because they are down: the present ones, or those to which `down` belongs."""
        down = down or self._down
        if not down.done():
            down.set_result(reason)
