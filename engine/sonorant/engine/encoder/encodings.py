"""The recordings of all server processes: they wait in turns of their callers, are decoded and encoded, and what was
made of them is kept.

Each of several lanes takes the next recording, of a caller who has fewest in lanes, decodes it in a process of its own
and has it encoded. A caller leaves one lane to others. A recording is encoded once, however many calls bring it at the
same time.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping
from contextvars import Context
from dataclasses import dataclass, field

from sonorant.engine.encoder import decoding
from sonorant.engine.encoder.kept_up import KeptUpEncoder
from sonorant.engine.encoder.limits import NICENESS
from sonorant.engine.encoder.request_worker import Died, RequestWorker, fault
from sonorant.engine.encoder.wire import Decoded, EncoderAnswer, Upload, Want, decoded, max_samples_bytes
from sonorant.engine.encoder.wire import decoding as request_to_decode
from sonorant.engine.errors import EngineError, EngineOverloaded, EngineUnavailable
from sonorant.engine.fair_queue import FairQueue
from sonorant.engine.lru_cache import LruCache
from sonorant.engine.types import Spent
from sonorant.machine import num_cores

log = logging.getLogger(__name__)

KNOWN_BYTES = 64 * 2**20  # what was made of recordings: some ten kB each
WAITING_BYTES = 256 * 2**20  # recordings that wait
FIRST_GUESS_S = 0.05  # how long a lane needs for a recording, as long as none was encoded
NEWEST_SHARE = 0.2  # of the latest recording in the mean of these times
MIN_LANES, MAX_LANES, CORES_PER_LANE = 2, 8, 4
START_AGAIN_S = 1.0


@dataclass(slots=True, eq=False)
class _Job:
    upload: Upload
    encoder: KeptUpEncoder
    answer: "asyncio.Future[tuple[EncoderAnswer, Spent]]"
    line: str  # the caller's
    begun_s: float = field(default_factory=time.monotonic)
    num_callers: int = 0
    decoding: "asyncio.Task[Decoded] | None" = None
    waits: bool = True  # in the queue

    def settle(self, answer: "tuple[EncoderAnswer, Spent] | EngineError") -> None:
        if self.answer.done():
            return
        if isinstance(answer, EngineError):
            self.answer.set_exception(answer)
            self.answer.exception()  # nobody may be waiting any more
        else:
            self.answer.set_result(answer)


_Key = tuple[KeptUpEncoder, int, bytes, Want]


class Encodings:
    def __init__(self, max_wait_s: float, decode_timeout_s: float, start_timeout_s: float, *, on_gpu: bool) -> None:
        """`on_gpu`: recordings are encoded there, so decoding them need not give way to it."""
        self._max_wait_s = max_wait_s
        self._decode_timeout_s = decode_timeout_s
        self._start_timeout_s = start_timeout_s
        self._niceness = NICENESS // 3 if on_gpu else NICENESS
        self._num_lanes = max(MIN_LANES, min(MAX_LANES, num_cores() // CORES_PER_LANE))
        self._lanes_of_one = self._num_lanes - 1  # of one caller at once
        self._queue = FairQueue[_Job]()
        self._under_way = Counter[str]()  # recordings in lanes, by line
        self._waiting_bytes = 0
        self._has_jobs = asyncio.Event()
        self._jobs: dict[_Key, _Job] = {}
        self._known: LruCache[_Key, EncoderAnswer] = LruCache(KNOWN_BYTES)
        self._lane_s = FIRST_GUESS_S
        self._lanes: list[asyncio.Task[None]] = []
        self._decoders: dict[int, RequestWorker] = {}  # by lane
        self._is_closed = False

    @property
    def decoder_pids(self) -> list[int]:
        return [decoder.child.pid for decoder in self._decoders.values()]

    @property
    def num_jobs(self) -> int:
        """How many recordings wait, are decoded or are encoded."""
        return len(self._jobs)

    async def start(self) -> None:
        """Start the processes that decode. Raises EngineError if they cannot be."""
        starts = [self._start_decoder(lane) for lane in range(self._num_lanes)]
        errors = [error for error in await asyncio.gather(*starts, return_exceptions=True) if error is not None]
        if errors:
            await self.close()
            raise errors[0]
        self._lanes = [
            asyncio.create_task(self._lane(n), name=f"recordings {n}", context=Context())
            for n in range(self._num_lanes)
        ]

    def known(self, encoder: KeptUpEncoder, upload: Upload) -> EncoderAnswer | None:
        return self._known.get(_key(encoder, upload))

    async def encode(self, encoder: KeptUpEncoder, upload: Upload) -> tuple[EncoderAnswer, Spent]:
        """Encode a recording when it is its caller's turn, or return what was made of it before.

        Raises InvalidRecording, EncodingFailed, EngineOverloaded or EngineUnavailable. If all its callers are
        cancelled, a recording that waits leaves the queue, and the process that decodes it is stopped.
        """
        if self._is_closed:
            raise EngineUnavailable("the engine is closed")
        if (answer := self.known(encoder, upload)) is not None:
            return answer, Spent()
        key = _key(encoder, upload)
        job = self._jobs.get(key)
        if job is None:
            job = self._queued(encoder, upload)
        job.num_callers += 1
        try:
            return await asyncio.shield(job.answer)
        finally:
            job.num_callers -= 1
            if not job.num_callers and not job.answer.done():
                self._leave(job)

    async def close(self) -> None:
        """Stop the processes. Recordings that are not encoded fail with EngineUnavailable."""
        self._is_closed = True
        for task in self._lanes:
            task.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        for job in list(self._jobs.values()):
            job.settle(EngineUnavailable("the engine was closed before the recording was encoded"))
        self._jobs.clear()
        for lane in list(self._decoders):
            await self._decoders.pop(lane).stop()

    # The queue

    def _queued(self, encoder: KeptUpEncoder, upload: Upload) -> _Job:
        line = str(upload.caller)
        wait_s = self._lane_s * self._queue.num_ahead(line) / self._lanes_of_one
        allowed_s = max(self._max_wait_s, upload.wait_s)
        if wait_s > allowed_s:
            raise _overloaded(f"the recording would wait {wait_s:.1f} s to be encoded", wait_s - allowed_s)
        job = _Job(upload, encoder, asyncio.get_running_loop().create_future(), line)
        self._jobs[_key(encoder, upload)] = job
        self._queue.push(job, line)
        self._has_jobs.set()
        self._waiting_bytes += len(upload.audio)
        while self._waiting_bytes > WAITING_BYTES:  # the last one may be this one
            last = self._queue.drop()
            self._forget(last)
            last.settle(_overloaded("the recordings that wait to be encoded are too many to be held", wait_s))
        return job

    def _leave(self, job: _Job) -> None:
        """Give up a recording that nobody wants any more. One that is being encoded will be known."""
        if job.waits:
            self._queue.remove(job, job.line)
            self._forget(job)
        elif job.decoding is not None:
            job.decoding.cancel()
            self._done(job)  # a caller that brings it again has it decoded again

    def _forget(self, job: _Job) -> None:
        """A job does not wait any more, and nobody works on it."""
        self._taken(job)
        self._done(job)

    def _taken(self, job: _Job) -> None:
        job.waits = False
        self._waiting_bytes -= len(job.upload.audio)

    def _done(self, job: _Job) -> None:
        key = _key(job.encoder, job.upload)
        if self._jobs.get(key) is job:
            del self._jobs[key]

    # Lanes

    def _may_take(self) -> bool:
        """Whether a recording waits whose caller would leave a lane to others."""
        load = self._under_way.__getitem__
        return bool(self._queue) and load(self._queue.first(load)) < self._lanes_of_one

    async def _lane(self, lane: int) -> None:
        while True:
            while not self._may_take():
                self._has_jobs.clear()
                await self._has_jobs.wait()
            job = self._queue.popleft(self._under_way.__getitem__)
            self._taken(job)
            self._under_way[job.line] += 1
            taken_s = time.monotonic()
            try:
                job.settle(await self._work(lane, job, taken_s))
                self._lane_s += NEWEST_SHARE * (time.monotonic() - taken_s - self._lane_s)
            except EngineError as error:
                job.settle(error)
            except asyncio.CancelledError:
                job.settle(EngineUnavailable("the engine was closed before the recording was encoded"))
                raise
            except Exception:
                log.exception("a recording failed")
                job.settle(EngineUnavailable("the recording could not be encoded; try again"))
            finally:
                self._under_way -= Counter([job.line])
                self._has_jobs.set()
                self._done(job)

    async def _work(self, lane: int, job: _Job, taken_s: float) -> "tuple[EncoderAnswer, Spent] | EngineError":
        await self._ensure_decoder(lane)
        found, decoded_s = await self._decode_unless_left(lane, job), time.monotonic()
        if found is None:
            await self._stop_decoder(lane)
            return EngineUnavailable("its callers have left")
        want = job.upload.want
        if want is Want.NOTHING:
            answer = EncoderAnswer(found.recording)
        else:
            answer = await job.encoder.encode(found, job.line, with_codes=want is Want.X_VECTOR_AND_CODES)
            self._known.put(_key(job.encoder, job.upload), answer)
        return answer, Spent(taken_s - job.begun_s, decoded_s - taken_s, time.monotonic() - decoded_s)

    async def _ensure_decoder(self, lane: int) -> None:
        """Replace the lane's process if it died while idle, or could not be started before."""
        if lane in self._decoders and self._decoders[lane].child.is_dead:
            await self._stop_decoder(lane)
        while lane not in self._decoders:
            try:
                await self._start_decoder(lane)
            except EngineError as error:
                log.error("%s; trying again", error)
                await asyncio.sleep(START_AGAIN_S)

    async def _decode_unless_left(self, lane: int, job: _Job) -> Decoded | None:
        """Decode the recording; return None if all its callers have left meanwhile, which cancels `job.decoding`."""
        task = job.decoding = asyncio.create_task(self._decode(lane, job), name="decoding")
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        job.decoding = None
        return None if task.cancelled() else task.result()

    async def _decode(self, lane: int, job: _Job) -> Decoded:
        rate_hz = job.encoder.sample_rate_hz
        request = request_to_decode(rate_hz), job.upload.audio, max_samples_bytes(rate_hz)
        try:
            return decoded(*await self._decoders[lane].ask(*request, self._decode_timeout_s))
        except (TimeoutError, Died, ValueError) as error:
            failure = fault(error, "decoder", self._decode_timeout_s)
            log.error("%s; the next recording gets a new one", failure)
            await self._stop_decoder(lane)
            raise failure from None

    async def _start_decoder(self, lane: int) -> None:
        environment: Mapping[str, str] = {}
        self._decoders[lane] = await RequestWorker.start(
            "decoder", decoding.main, self._niceness, environment, self._start_timeout_s
        )

    async def _stop_decoder(self, lane: int) -> None:
        if (decoder := self._decoders.pop(lane, None)) is not None:
            await decoder.stop()


def _key(encoder: KeptUpEncoder, upload: Upload) -> _Key:
    return encoder, upload.holder, upload.digest, upload.want


def _overloaded(what: str, retry_s: float) -> EngineOverloaded:
    error = EngineOverloaded(f"{what}; try again later")
    error.retry_s = max(1.0, retry_s)
    return error
