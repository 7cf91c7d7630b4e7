"""The two worker processes as one thing that is up or down: starts them, watches them, replaces them, stops them.

Knows the rings and their sizes, not the streams: it carries records, and says when all that was sent is lost.
A worker that dies takes its partner with it, because the rings between them are part of both; a new pair gets new ones.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import Any

from engine.checkpoint import Checkpoint
from engine.code2wav import process as code2wav
from engine.config import EngineConfig, StageName
from engine.errors import EngineError
from engine.ipc.channel import PeerGone, RingInbox, RingOutbox
from engine.ipc.child import Child
from engine.ipc.doorbell import Doorbell
from engine.ipc.heartbeat import Heartbeat, Work
from engine.ipc.messages import END, FIRST_CHUNK, HEADER, TIMES, Command, PcmRecord, Shutdown
from engine.ipc.ring import Ring, record_bytes
from engine.talker import process as talker

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 5.0  # for workers to exit by themselves
RESTART_DELAYS_S = (0.0, 0.5, 1.0, 2.0)  # before the restart after the first, second, ... failure in a row
FAILURES_WINDOW_S = 60.0  # one failure more than there are delays in this time, and the supervisor gives up
HEALTH_CHECK_S = 1.0
DETAIL_BYTES = 512  # allowed for in the end of a stream


class EngineState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"  # the workers went down; live streams were ended
    FAILED = "failed"  # they keep going down: given up
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class RingSizes:
    """Bytes of the three rings, for what may be in flight at once.

    Frames: no stream is further ahead than its credit, so `max_streams * credit_frames` is all there can be, on rings B
    and C alike, in the worst case one frame to a record. Every ring takes at least two of its largest records.

    Ring A is bounded by what callers send, and the parent keeps what does not fit. Reference codes on ring B are room
    for four of the longest: should more streams begin in one moment, the talker waits for Code2Wav, which never waits
    for the talker; and Code2Wav never waits long for the parent, which takes what comes.
    """

    commands: int
    frames: int
    pcm: int

    @classmethod
    def of(cls, config: EngineConfig, checkpoint: Checkpoint) -> "RingSizes":
        codebooks = checkpoint.talker.num_codebooks
        frame_bytes = checkpoint.codec.frame_samples * 2
        row_bytes = HEADER.size + TIMES.size + 8 + 4  # of a batch with one row: header, times, stream id, frame index
        end_bytes = record_bytes(HEADER.size + END.size + DETAIL_BYTES)
        reference_bytes = config.max_context * codebooks * 2

        x_vector_bytes = checkpoint.talker.stack.hidden_size * 4
        plan_bytes = 7 * config.max_context * 5  # two columns, what trails (see Engine.check); pickled ints take five
        open_bytes = record_bytes(HEADER.size + reference_bytes + x_vector_bytes + plan_bytes + 4096)

        max_frames = config.max_streams * config.credit_frames
        frames = max_frames * (record_bytes(row_bytes + codebooks * 2) + record_bytes(HEADER.size))  # each with a flush
        start_bytes = record_bytes(HEADER.size + max(TIMES.size, FIRST_CHUNK.size))
        starts_and_ends = config.max_streams * (start_bytes + end_bytes)
        silences = config.max_streams * record_bytes(HEADER.size)
        pcm = max_frames * record_bytes(row_bytes + frame_bytes) + starts_and_ends + silences
        batch_bytes = config.max_decode_batch * (row_bytes + config.credit_frames * frame_bytes)
        return cls(
            commands=4 * open_bytes + 64 * 1024,
            frames=frames + starts_and_ends + 4 * record_bytes(HEADER.size + reference_bytes),
            pcm=max(pcm, 2 * record_bytes(HEADER.size + batch_bytes)),
        )


class Workers:
    """One talker, one Code2Wav and the rings between them: started once, stopped once."""

    def __init__(self, config: EngineConfig, checkpoint: Checkpoint) -> None:
        sizes = RingSizes.of(config, checkpoint)
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            beats = [ours.enter_context(contextlib.closing(Heartbeat())) for _ in range(2)]
            rings = [ours.enter_context(contextlib.closing(Ring(size))) for size in astuple(sizes)]
            # Only the child may hold its own ends: that they close tells of its death.
            bells = [_doorbell(ours, theirs), _doorbell(theirs, theirs), _doorbell(theirs, ours)]
            outboxes: list[RingOutbox[Any]] = [
                RingOutbox(ring, bell) for ring, (bell, _) in zip(rings, bells, strict=True)
            ]
            inboxes: list[RingInbox[Any]] = [
                RingInbox(ring, bell) for ring, (_, bell) in zip(rings, bells, strict=True)
            ]
            children: list[Child] = []
            stages: tuple[tuple[StageName, Any], ...] = (("talker", talker.main), ("code2wav", code2wav.main))
            for n, (stage, main) in enumerate(stages):
                ends = (inboxes[n], outboxes[n + 1], beats[n])
                child = Child(stage, main, (config, *ends), ends, config.environment(stage))
                children.append(ours.enter_context(contextlib.closing(child)))
            self._resources = ours.pop_all()
        self._model = checkpoint.name
        self.outbox: RingOutbox[Command] = outboxes[0]
        self.inbox: RingInbox[PcmRecord] = inboxes[2]
        self.rings = rings
        self.children = children
        self.heartbeats = beats
        self.watches = [
            _Watch(child.name, beat, ring, config.hang_timeout_s)
            for child, beat, ring in zip(children, beats, rings, strict=False)
        ]

    async def ready(self, timeout_s: float) -> None:
        """Return when both have loaded. Raises EngineError with the reason as soon as one does not."""
        greetings = [asyncio.ensure_future(self._greet(child)) for child in self.children]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*greetings)
        except TimeoutError:
            raise EngineError(f"the workers did not load the model within {timeout_s:g} s; see their log") from None
        finally:
            for greeting in greetings:
                greeting.cancel()
            await asyncio.gather(*greetings, return_exceptions=True)

    async def _greet(self, child: Child) -> None:
        value = await child.loaded()
        log.info("%s worker %d of %s is ready: %s", child.name, child.pid, self._model, value)

    async def stop(self, grace_s: float) -> None:
        """Give the workers this long to exit by themselves, kill those that do not, and release everything."""
        with self._resources:
            try:
                async with asyncio.timeout(grace_s):
                    await self._dead()
            except TimeoutError:
                for child in self.children:
                    child.kill()
                await self._dead()

    async def _dead(self) -> None:
        for child in self.children:
            await child.dead()


def _doorbell(writer: contextlib.ExitStack, reader: contextlib.ExitStack) -> tuple[Doorbell, Doorbell]:
    """Its ends, each to be closed with what it belongs to."""
    ends = Doorbell.pair()
    for stack, end in zip((writer, reader), ends, strict=True):
        stack.enter_context(contextlib.closing(end))
    return ends


class _Watch:
    """Tells whether a worker hangs: in one step, or before its inbox."""

    def __init__(self, name: str, heartbeat: Heartbeat, inbox: Ring, timeout_s: float) -> None:
        self._name = name
        self._heartbeat = heartbeat
        self._inbox = inbox
        self._timeout_s = timeout_s
        self._consumed_bytes = 0
        self._progress_s = time.monotonic()

    def complaint(self) -> str:
        """What is wrong, or nothing."""
        now_s = time.monotonic()
        if self._inbox.consumed_bytes != self._consumed_bytes or not self._inbox.used_bytes:
            self._consumed_bytes = self._inbox.consumed_bytes
            self._progress_s = now_s
        busy_s = self._heartbeat.busy_s()
        if busy_s > self._timeout_s:
            return f"the {self._name} worker has been busy with one step for {busy_s:.0f} s"
        if now_s - self._progress_s > self._timeout_s:
            return f"the {self._name} worker has not read its inbox for {now_s - self._progress_s:.0f} s"
        return ""


class Supervisor:
    """Keeps a pair of workers running. The callbacks run in the event loop's thread.

    `on_records` gets everything ring C brings. `on_state` gets each new state with its reason, before anything can be
    sent to new workers; at RESTARTING, FAILED and CLOSED everything sent so far is lost and will not be answered.
    """

    def __init__(
        self,
        config: EngineConfig,
        checkpoint: Checkpoint,
        on_records: Callable[[Sequence[PcmRecord]], None],
        on_state: Callable[[EngineState, str], None],
    ) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._on_records = on_records
        self._on_state = on_state
        self._workers: Workers | None = None
        self._backlog: list[Command] = []
        self._flush_scheduled = False
        self._down: asyncio.Future[str]  # set while workers are up: why they no longer are
        self._health_check: asyncio.TimerHandle
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises EngineError if the workers cannot load; nothing is left running then."""
        await self._bring_up()
        self._task = asyncio.create_task(self._keep_up(), name="engine supervisor")

    def publish(self, command: Command) -> None:
        """Send in order, as one batch with whatever else this turn of the event loop sends. Never blocks or drops."""
        self._backlog.append(command)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    @property
    def backlog(self) -> int:
        """Commands not yet on ring A."""
        return len(self._backlog)

    def ring_bytes(self) -> tuple[int, int, int]:
        """Bytes in flight on the rings A, B and C."""
        if self._workers is None:
            return 0, 0, 0
        commands, frames, pcm = (ring.used_bytes for ring in self._workers.rings)
        return commands, frames, pcm

    def work(self) -> dict[str, Work]:
        """What the workers that are up have done since they came up."""
        if self._workers is None:
            return {}
        pairs = zip(self._workers.children, self._workers.heartbeats, strict=True)
        return {child.name: heartbeat.work() for child, heartbeat in pairs}

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._workers is not None:
            self._backlog.append(Shutdown())
            self._flush()
            await self._take_down(STOP_TIMEOUT_S)
        self._on_state(EngineState.CLOSED, "the engine is closed")

    async def _keep_up(self) -> None:
        try:
            reason = await self._replace_workers()
        except Exception as error:
            log.exception("the workers of %s are replaced no more: an error of ours", self._checkpoint.name)
            reason = f"{type(error).__name__} while workers were replaced; see the log"
        self._on_state(EngineState.FAILED, reason)

    async def _replace_workers(self) -> str:
        """Whenever they go down, until they keep going down: why they last did."""
        failures: deque[float] = deque()
        reason = await self._down
        while True:
            log.error("%s; restarting both workers", reason)
            self._on_state(EngineState.RESTARTING, reason)
            if self._workers is not None:
                await self._take_down(grace_s=0)
            failures.append(time.monotonic())
            while failures[0] < failures[-1] - FAILURES_WINDOW_S:
                failures.popleft()
            if len(failures) > len(RESTART_DELAYS_S):
                log.error("%d failures in %.0f s: giving up", len(failures), FAILURES_WINDOW_S)
                return reason
            await asyncio.sleep(RESTART_DELAYS_S[len(failures) - 1])
            try:
                await self._bring_up()
                reason = await self._down
            except EngineError as error:
                reason = str(error)

    async def _bring_up(self) -> None:
        try:
            workers = Workers(self._config, self._checkpoint)
        except OSError as error:
            raise EngineError(f"cannot start workers: {error}; allow more open files, or free memory") from error
        try:
            await workers.ready(self._config.start_timeout_s)
        except BaseException:
            await workers.stop(grace_s=0)
            raise
        loop = asyncio.get_running_loop()
        self._workers = workers
        self._down = loop.create_future()
        loop.add_reader(workers.inbox.fileno(), self._receive)
        for child in workers.children:
            loop.add_reader(child.fileno(), self._died, child)
        self._check_health()
        self._on_state(EngineState.READY, "")

    async def _take_down(self, grace_s: float) -> None:
        assert self._workers is not None
        workers, self._workers = self._workers, None
        loop = asyncio.get_running_loop()
        for fd in (workers.inbox.fileno(), workers.outbox.fileno(), *(child.fileno() for child in workers.children)):
            loop.remove_reader(fd)
        self._health_check.cancel()
        self._backlog.clear()
        self._flush_scheduled = False
        await workers.stop(grace_s)

    def _flush(self) -> None:
        if self._workers is None:  # what is sent to none is lost
            self._backlog.clear()
            self._flush_scheduled = False
            return
        loop = asyncio.get_running_loop()
        outbox = self._workers.outbox
        loop.remove_reader(outbox.fileno())
        try:
            del self._backlog[: outbox.try_publish(self._backlog)]
        except PeerGone:  # its death is about to be noticed
            self._backlog.clear()
        self._flush_scheduled = bool(self._backlog)
        if self._backlog:
            loop.add_reader(outbox.fileno(), self._flush)

    def _receive(self) -> None:
        assert self._workers is not None
        try:
            self._on_records(self._workers.inbox.drain())
        except PeerGone:
            asyncio.get_running_loop().remove_reader(self._workers.inbox.fileno())
        except Exception as error:  # of ours; streams that miss a record would wait for ever
            log.exception("records from the workers of %s could not be taken", self._checkpoint.name)
            self._report_down(f"{type(error).__name__} at what the workers sent")

    def _died(self, child: Child) -> None:
        asyncio.get_running_loop().remove_reader(child.fileno())
        self._report_down(f"the {child.name} worker {child.pid} died (exit code {child.wait()})")
        self._receive()  # what it still said counts: nobody acts on the report before the next turn of the loop

    def _check_health(self) -> None:
        assert self._workers is not None
        for watch in self._workers.watches:
            if complaint := watch.complaint():
                self._report_down(complaint)
        interval_s = min(HEALTH_CHECK_S, self._config.hang_timeout_s / 2)
        self._health_check = asyncio.get_running_loop().call_later(interval_s, self._check_health)

    def _report_down(self, reason: str) -> None:
        if not self._down.done():
            self._down.set_result(reason)
