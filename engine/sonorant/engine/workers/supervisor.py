"""Keeps a worker pair running: starts the workers, watches them, replaces them, stops them.

Knows nothing of streams and their records: it reports when everything sent so far is lost.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.channel import PeerGone
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.fork_server import WORKERS
from sonorant.engine.ipc.messages import Shutdown
from sonorant.engine.workers.ring_sizes import RingSizes
from sonorant.engine.workers.seat import Facts, Seat
from sonorant.engine.workers.spare_files import SpareFiles
from sonorant.engine.workers.state import EngineState
from sonorant.engine.workers.workers import Workers

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 5.0  # for workers to exit by themselves
RESTART_DELAYS_S = (
    0.0,
    0.5,
    1.0,
    2.0,
)  # before the restart after the first, second, ... failure in a row; after one more there is no restart
HEALTHY_AFTER_S = 60.0  # after workers were up for so long, failures are counted from zero
START_AGAIN_S = 1.0  # between attempts while the system lacks files or memory to start workers
NEIGHBOUR_S = 2.0  # after a worker has left in order, wait so long for the death of its neighbour, which explains it


class WorkersNotStarted(EngineError):
    """The system lacks the files or memory to start a process."""


class Supervisor:
    """Keeps a worker pair running, for one server process or more. The callbacks run in the event loop's thread.

    `on_state` gets each new state with its reason. At RESTARTING, FAILED and CLOSED everything sent so far is lost and
    will not be answered, and the ends of the rings must not be used any more. `judged` is awaited after RESTARTING:
    until it returns, `forgive` still counts for this failure.
    """

    def __init__(
        self,
        config: EngineConfig,
        checkpoint: Checkpoint,
        on_state: Callable[[EngineState, str], None],
        num_servers: int,
        judged: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._name = checkpoint.name
        self._sizes = RingSizes.of(config, checkpoint)
        self._on_state = on_state
        self._num_servers = num_servers
        self._judged = judged
        self.num_restarts = 0  # how often workers went down and others were to take their place
        self._workers: Workers | None = None
        self._last_facts: Facts = {}  # facts of the last workers that loaded
        self._down: asyncio.Future[str]  # gets the reason when the present workers go down
        self._health_check: asyncio.TimerHandle
        self._ready_s = math.inf  # when the last workers came up
        self._is_forgiven = False
        self._spare_files = SpareFiles()
        self._holds = contextlib.ExitStack()  # holds the fork server while workers may be needed
        self._task: asyncio.Task[None] | None = None

    async def start(self, known: Facts | None = None) -> None:
        """Start the workers and wait until they have loaded. If they cannot, raises EngineError and leaves nothing.

        `known`: the facts of workers with the same checkpoint and card, so that nothing is measured again."""
        self._last_facts = known or {}
        with contextlib.ExitStack() as undo:
            WORKERS.hold()
            undo.callback(WORKERS.release)
            await self._bring_up()
            self._holds = undo.pop_all()
        self._spare_files.open()
        self._task = asyncio.create_task(self._keep_up(), name="engine supervisor")

    def forgive(self) -> None:
        """Do not count the present failure of the workers. Call it from `on_state` at RESTARTING."""
        self._is_forgiven = True

    def seat(self, server: int) -> Seat | None:
        """Return what a server process uses of the running workers, if there are any."""
        return None if self._workers is None else self._workers.seats[server]

    def facts(self) -> Facts:
        """What each running worker reported when it had loaded, by the worker's name."""
        return {} if self._workers is None else self._workers.facts

    async def close(self) -> None:
        """Stop the workers. Nobody but this may write on their rings any more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._on_state(EngineState.CLOSED, "the engine is closed")
        if self._workers is not None:
            outbox = self._workers.seats[0].outbox
            outbox.go_on()  # a server process has written here until now
            with contextlib.suppress(PeerGone):
                outbox.try_publish([Shutdown()])
            await self._take_down(STOP_TIMEOUT_S)
        self._holds.close()
        self._spare_files.close()

    async def _keep_up(self) -> None:
        try:
            reason = await self._replace_workers()
        except Exception as error:
            log.exception("the workers of %s are not replaced any more, after an internal error", self._name)
            reason = f"{type(error).__name__} while replacing workers; see the log"
        self._holds.close()
        self._on_state(EngineState.FAILED, reason)

    async def _replace_workers(self) -> str:
        """Replace the workers whenever they go down. Return the last reason after too many failures in a row."""
        num_failures = 0  # in a row, including failures to load, however long loading took
        reason = await self._down
        while True:
            log.error("%s; restarting both workers", reason)
            self.num_restarts += 1
            if time.monotonic() - self._ready_s > HEALTHY_AFTER_S:
                num_failures = 0
            self._is_forgiven = False
            self._on_state(EngineState.RESTARTING, reason)
            if self._workers is not None:
                await self._take_down(grace_s=0)
            await self._judged()
            num_failures += not self._is_forgiven
            if num_failures > len(RESTART_DELAYS_S):
                log.error("%d failures in a row: giving up", num_failures)
                return reason
            await asyncio.sleep(RESTART_DELAYS_S[max(0, num_failures - 1)])
            try:
                await self._bring_up_when_possible()
                reason = await self._down
            except EngineError as error:
                reason = str(error)

    async def _bring_up_when_possible(self) -> None:
        """Start workers, retrying while the system cannot start them. Raises EngineError if the workers cannot load."""
        while True:
            self._spare_files.close()  # in case all other files are in use
            try:
                await self._bring_up()
                return
            except WorkersNotStarted as error:
                log.error("%s; trying again", error)
            finally:
                self._spare_files.open()
            await asyncio.sleep(START_AGAIN_S)

    async def _bring_up(self) -> None:
        self._ready_s = math.inf
        try:
            workers = await Workers.start(self._config, self._name, self._sizes, self._last_facts, self._num_servers)
        except OSError as error:
            message = f"cannot start workers: {error}; allow more open files, or free memory"
            raise WorkersNotStarted(message) from error
        try:
            await workers.ready(self._config.start_timeout_s)
        except BaseException:
            await workers.stop(grace_s=0)
            raise
        loop = asyncio.get_running_loop()
        self._workers, self._last_facts = workers, workers.facts
        self._down = loop.create_future()
        self._ready_s = time.monotonic()
        for child in workers.children:
            loop.add_reader(child.fileno(), self._died, child)
        self._health_check = loop.call_later(workers.health_check_s, self._check_health)
        self._on_state(EngineState.READY, "")

    async def _take_down(self, grace_s: float) -> None:
        assert self._workers is not None
        workers, self._workers = self._workers, None
        loop = asyncio.get_running_loop()
        for child in workers.children:
            loop.remove_reader(child.fileno())
        self._health_check.cancel()
        await workers.stop(grace_s)

    def _died(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(child.fileno())
        code = child.wait()
        reason = f"the {child.name} worker {child.pid} died (exit code {code})"
        if code:
            self.report_down(reason)
        else:  # it left because its neighbour is gone, whose death is reported in a moment and says more
            loop.call_later(NEIGHBOUR_S, self.report_down, reason, self._down)

    def _check_health(self) -> None:
        assert self._workers is not None
        for watch in self._workers.watches:
            if complaint := watch.complaint():
                self.report_down(complaint)
        interval_s = self._workers.health_check_s
        self._health_check = asyncio.get_running_loop().call_later(interval_s, self._check_health)

    def report_down(self, reason: str, down: "asyncio.Future[str] | None" = None) -> None:
        """Have workers replaced because they are down: the present ones, or those to which `down` belongs."""
        down = down or self._down
        if not down.done():
            down.set_result(reason)
