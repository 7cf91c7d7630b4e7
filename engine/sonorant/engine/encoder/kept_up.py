"""Keeps the encoder process of one checkpoint running, and has recordings encoded there, one at a time."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder import process
from sonorant.engine.encoder.request_worker import Died, RequestWorker, fault
from sonorant.engine.encoder.wire import MAX_CODES_BYTES, Decoded, EncoderAnswer, encoded, encoding
from sonorant.engine.errors import EngineError
from sonorant.engine.fair_queue import FairQueue

log = logging.getLogger(__name__)

RESTART_S = 1.0  # between attempts to replace a process
TRIES = 2  # for each recording: something else may have killed the process


class EncoderTurns:
    """Gives the turn to one at a time. After a caller it is another's turn, if one waits."""

    def __init__(self) -> None:
        self._waiting = FairQueue[asyncio.Future[None]]()
        self._latest: str | None = None  # the caller that has the turn, or had it last
        self._is_taken = False

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        if self._is_taken:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.push(turn, caller)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it was given the turn before it could leave
                    self._pass_on()
                raise
        self._is_taken, self._latest = True, caller
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        self._is_taken = False
        while self._waiting and not self._is_taken:
            turn = self._waiting.popleft(lambda caller: caller == self._latest)
            if not turn.cancelled():
                turn.set_result(None)
                self._is_taken = True


class KeptUpEncoder:
    def __init__(self, config: EngineConfig, checkpoint: Checkpoint) -> None:
        """Use `start`, then `encode`, then `close`."""
        self._config = config
        self._checkpoint = checkpoint
        self._worker: RequestWorker | None = None
        self._is_up = asyncio.Event()
        self._is_down = asyncio.Event()  # the process is of no use any more
        self._turns = EncoderTurns()
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None while it is not running."""
        return self._worker.child.pid if self._worker else None

    @property
    def sample_rate_hz(self) -> int:
        return self._checkpoint.codec.input_sample_rate

    async def start(self) -> None:
        """Start the process and wait until it has loaded. If it cannot, raises EngineError and leaves nothing."""
        await self._bring_up()
        self._task = asyncio.create_task(self._keep_up(), name="encoder")

    async def encode(self, decoded: Decoded, caller: str, *, with_codes: bool) -> EncoderAnswer:
        """Encode a recording in turns of callers. Raises EncodingFailed, which concerns this recording alone."""
        timeout_s = self._config.encoder.encode_timeout_s
        async with self._turns.turn(caller):
            for tries_left in reversed(range(TRIES)):
                await self._is_up.wait()
                assert self._worker is not None
                try:
                    return await self._ask(self._worker, decoded, with_codes, timeout_s)
                except (TimeoutError, Died, ValueError) as error:
                    failure = fault(error, "encoder", timeout_s)
                    log.error("%s; the encoder is replaced", failure)
                    self._is_up.clear()
                    self._is_down.set()
                    if not (tries_left and isinstance(error, Died)):
                        raise failure from None
        raise AssertionError("the last try returns or raises")

    async def _ask(self, worker: RequestWorker, decoded: Decoded, with_codes: bool, timeout_s: float) -> EncoderAnswer:
        talker = self._checkpoint.talker
        _, arrays = await worker.ask(encoding(with_codes), decoded.samples, MAX_CODES_BYTES, timeout_s)
        return encoded(decoded.recording, arrays, with_codes, talker.stack.hidden_size, talker.num_codebooks)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._take_down()

    async def _bring_up(self) -> None:
        self._is_down.clear()
        environment = self._config.environment()
        self._worker = await RequestWorker.start(
            "encoder", process.main, self._config, environment, self._config.start_timeout_s
        )
        self._is_up.set()

    async def _take_down(self) -> None:
        self._is_up.clear()
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.stop()

    async def _keep_up(self) -> None:
        while True:
            if self._worker is None:
                try:
                    await self._bring_up()
                except EngineError as error:
                    log.error("%s; trying again", error)
                    await asyncio.sleep(RESTART_S)
                    continue
            assert self._worker is not None
            ends = [asyncio.ensure_future(each) for each in (self._worker.dead(), self._is_down.wait())]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.wait(ends)
            log.warning("the encoder of %s is down; starting another", self._checkpoint.name)
            await self._take_down()
