"""Runs the encoder process on demand: starts it at the first recording, replaces it when it dies, stops it when idle.

It encodes one recording at a time, in the order they came. If the process dies or hangs on a recording, only that one
fails; the next one gets a new process.
"""

import asyncio
import contextlib
import logging
import socket
from collections import deque
from contextvars import Context
from dataclasses import dataclass

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder import process
from sonorant.engine.encoder.wire import Answer, Request, Want, read_answer, write_request
from sonorant.engine.errors import EncodingFailed, EngineError, EngineOverloaded, EngineUnavailable
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.fork_server import WORKERS
from sonorant.engine.ipc.inherited import SocketEnd

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    request: Request
    answer: asyncio.Future[Answer]

    def settle(self, answer: Answer | EngineError) -> None:
        if self.answer.done():  # its caller was cancelled
            return
        if isinstance(answer, EngineError):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class OnDemandEncoder:
    def __init__(self, config: EngineConfig, checkpoint: Checkpoint) -> None:
        """Does not start anything; the first `encode` starts the process."""
        self._config = config
        self._checkpoint = checkpoint
        self._jobs: deque[_Job] = deque()  # the first one is being encoded, or about to be
        self._has_jobs = asyncio.Event()
        self._worker: _Worker | None = None
        self._task: asyncio.Task[None] | None = None
        self._encoding: asyncio.Task[Answer | EngineError] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The encoder's process id, or None while it is not running."""
        return self._worker.child.pid if self._worker else None

    @property
    def num_recordings(self) -> int:
        """The number of recordings being encoded or waiting for it."""
        return len(self._jobs)

    async def encode(self, audio: bytes, want: Want) -> Answer:
        """Encode a recording. Raises InvalidRecording, EncodingFailed, EngineOverloaded or EngineUnavailable.

        If the caller is cancelled, its recording is not encoded. If encoding has begun, the process is stopped, and the
        next recording gets a new one.
        """
        if self._closed:
            raise EngineUnavailable("the engine is closed")
        if len(self._jobs) >= self._config.encoder.max_queued_recordings:
            raise EngineOverloaded(f"{len(self._jobs)} recordings are being encoded or queued; try again later")
        job = _Job(Request(want, audio), asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._has_jobs.set()
        if self._task is None or self._task.done():
            # Not in the context of this caller, as it works for all of them.
            self._task = asyncio.create_task(self._serve(), name="encoder", context=Context())
        try:
            return await job.answer
        finally:
            if job in self._jobs:
                if job is not self._jobs[0]:
                    self._jobs.remove(job)
                elif self._encoding is not None:
                    self._encoding.cancel()

    async def close(self) -> None:
        """Stop the process. Recordings being encoded or queued fail with EngineUnavailable."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _serve(self) -> None:
        try:
            while True:
                await self._wait_for_jobs()
                job = self._jobs[0]
                try:
                    if not job.answer.done():
                        job.settle(await self._encode_for(job))
                except EngineError as error:
                    job.settle(error)
                self._jobs.popleft()
        finally:
            for job in self._jobs:
                job.settle(EngineUnavailable("the engine was closed before the recording was encoded"))
            self._jobs.clear()
            await self._stop()

    async def _encode_for(self, job: _Job) -> Answer | EngineError:
        """Encode the job's recording, unless its caller is cancelled meanwhile; then stop the process."""
        self._encoding = asyncio.create_task(self._encode(job.request), name="recording")
        try:
            await asyncio.wait([self._encoding])
            if self._encoding.cancelled():
                log.info("the recording's caller has left; stopping the encoder")
                await self._stop()
                return EngineUnavailable("its caller has left")
            return self._encoding.result()
        finally:  # the engine may be closing: wait until the encoding has cleaned up
            encoding, self._encoding = self._encoding, None
            encoding.cancel()
            await asyncio.wait([encoding])

    async def _wait_for_jobs(self) -> None:
        while not self._jobs:
            self._has_jobs.clear()
            try:
                async with asyncio.timeout(self._config.encoder.idle_s if self._worker else None):
                    await self._has_jobs.wait()
            except TimeoutError:
                await self._stop()

    async def _encode(self, request: Request) -> Answer | EngineError:
        if self._worker is not None and self._worker.child.is_dead:  # it died while idle
            await self._stop()
        if self._worker is None:
            self._worker = await _Worker.start(self._config)
        talker = self._checkpoint.talker
        try:
            async with asyncio.timeout(self._config.encoder.encode_timeout_s):
                return await self._worker.ask(request, talker.stack.hidden_size, talker.num_codebooks)
        except TimeoutError:
            what = f"encoding the recording took more than {self._config.encoder.encode_timeout_s:g} s"
        except _Died as death:
            what = f"the encoder died of the recording (exit code {death})"
        except ValueError as error:
            what = f"the encoder gave an invalid answer ({error})"
        log.error("%s; the next recording gets a new encoder", what)
        await self._stop()
        return EncodingFailed(f"{what}; give it as a WAV file, or give another")

    async def _stop(self) -> None:
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.stop()


class _Died(Exception):
    """The encoder process died; the argument is its exit code."""


class _Worker:
    """One process and our end of its socket."""

    def __init__(self, child: Child, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.child = child
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, config: EngineConfig) -> "_Worker":
        """Start a process and wait until it has loaded. Raises EngineUnavailable if it cannot."""
        WORKERS.hold()
        worker = None
        try:
            worker = await cls._fork(config)
            async with asyncio.timeout(config.start_timeout_s):
                log.info("encoder worker %d is ready: %s", worker.child.pid, await worker.child.loaded())
            return worker
        except BaseException as error:
            if worker is not None:
                await worker.stop()
            else:
                WORKERS.release()
            if not isinstance(error, EngineError | OSError):
                raise
            reason = str(error) or f"it did not load within {config.start_timeout_s:g} s"
            raise EngineUnavailable(f"recordings cannot be encoded: {reason}") from error

    @classmethod
    async def _fork(cls, config: EngineConfig) -> "_Worker":
        ours, theirs = socket.socketpair()
        with theirs:  # only the child may hold it: its death shows by its closing
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            end = SocketEnd(theirs)
            try:
                child = await WORKERS.fork(
                    "encoder",
                    process.main,
                    (config, end),
                    [end],
                    config.environment("encoder"),
                    config.start_timeout_s,
                )
                return cls(child, reader, writer)
            except BaseException:
                writer.close()
                raise

    async def ask(self, request: Request, hidden_size: int, num_codebooks: int) -> Answer | EngineError:
        """Have a request answered. Raises _Died if the process dies meanwhile, ValueError for an invalid answer."""
        try:
            write_request(self._writer, request)
            await self._writer.drain()
            return await read_answer(self._reader, request.want, hidden_size, num_codebooks)
        except (ConnectionError, asyncio.IncompleteReadError):
            await self.child.dead()
            raise _Died(self.child.wait()) from None

    async def stop(self) -> None:
        """Kill the process at once, as it has nothing to save."""
        self._writer.close()
        self.child.kill()
        try:
            await self.child.dead()
        finally:
            self.child.close()
            WORKERS.release()
