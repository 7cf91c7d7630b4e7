"""A worker pair of the owner as a server process uses it: text in, PCM chunks out, for many streams at once.

Everything runs in the event loop's thread and nothing blocks it. Knows no gRPC, sessions, pacing or audio encodings.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sonorant.engine.config import EngineConfig, device_with_gpus
from sonorant.engine.encoder.wire import Want
from sonorant.engine.errors import EngineOverloaded, EngineUnavailable
from sonorant.engine.ipc.heartbeat import Work
from sonorant.engine.ipc.messages import EndStream, FirstChunk, PcmBatch, PcmRecord, SilentStream, TextPositions
from sonorant.engine.owner.board import BoardWord
from sonorant.engine.owner.link_messages import PairState
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.serving.keeping import KeptStream
from sonorant.engine.serving.model import Model
from sonorant.engine.serving.owner_link import OwnerLink
from sonorant.engine.serving.placement import Placement
from sonorant.engine.serving.places import Places
from sonorant.engine.serving.routing import PairLoad
from sonorant.engine.serving.stored import StoredStream
from sonorant.engine.serving.stream import EngineStream, Opening
from sonorant.engine.serving.traffic import Traffic
from sonorant.engine.sizes import listeners, real_time_factor
from sonorant.engine.types import (
    EncodedReference,
    FinishReason,
    Int16Array,
    PcmChunk,
    RecordingInfo,
    StreamBudget,
    SynthesisParams,
)
from sonorant.engine.workers.endpoint import Endpoint, EngineState, Facts

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What is in flight, all zero when idle, and the workers' totals since they started."""

    num_streams: int  # of all server processes
    backlog: int  # commands that wait for room on ring A
    ring_bytes: tuple[int, int, int]  # on rings A, B and C
    work: Mapping[str, Work]  # by the name of the worker


class Engine:
    """A worker pair, and this process's streams with it: `start` it, `open` streams while there is room, `close` it."""

    placement: Placement  # of its own streams alone, until the pool sets that of all replicas

    def __init__(
        self,
        config: EngineConfig,
        model: Model,
        on_change: "Callable[[Engine], None]",
        link: OwnerLink,
        number: int = 0,
    ) -> None:
        """`on_change` gets this engine whenever its workers are in a new state. `number`: of the pair in the server."""
        self.number = number
        self.model = model
        self.config = config
        self.gpu = device_with_gpus(config.talker.device)  # on a machine with GPUs; elsewhere all pairs have the same
        self.num_slots, self.max_stored = config.talker.num_slots, config.code2wav.stored_streams
        self.is_standby = config.is_standby
        self.neighbours: Sequence[Engine] = ()  # other pairs of the pool on this GPU, with which it shares its time
        self.state = EngineState.STARTING  # of the workers
        self.can_speak: bool | None = None  # whether the present workers can; None: not tried yet
        self.was_tried = False  # whether its first workers have been tried
        self.info = dataclasses.replace(model.info, max_streams=config.max_streams)
        self._on_change = on_change
        self._link = link
        self._process = link.process
        self._taken = link.process.entry(number)
        self._endpoint: Endpoint | None = None  # what this process has of the running workers, if there are any
        self._traffic = Traffic(model.info.model, self._deliver, lambda reason: link.report_down(number, reason))
        self._streams: dict[int, KeptStream] = {}  # all streams whose home is this pair
        self._running: dict[int, KeptStream] = {}  # by the id of the run, which the workers know
        self._spoken: asyncio.Future[bool] | None = None  # see `has_spoken`
        self._places = Places()
        self.resting = self._places.resting
        self._most_in_time: int | None = None  # streams that the workers, alone on their GPU, can make in time
        self.placement = Placement([self], link.verdicts, link.process.set_waiting)

    def start(self) -> None:
        """Follow the owner's pair from its present state on."""
        self.change(self._link.follow(self.number, self.change))

    @property
    def num_streams(self) -> int:
        """The number of streams that have not ended, including those whose caller has left."""
        return len(self._streams)

    def stats(self) -> EngineStats:
        return EngineStats(
            num_streams=self.num_streams + self._taken.of_others(BoardWord.STREAMS),
            backlog=self._traffic.backlog,
            ring_bytes=(0, 0, 0) if self._endpoint is None else self._endpoint.ring_bytes(),
            work={} if self._endpoint is None else self._endpoint.work(),
        )

    def open(
        self,
        params: SynthesisParams,
        credit_frames: int | None = None,
        known_codes: Int16Array | None = None,
        *,
        prompt: PromptLayout | None = None,
        outlives_workers: bool = True,
        waits: bool = False,
        caller: int = 0,
        in_turn: bool = False,
        background: bool = False,
    ) -> EngineStream:
        """Open a new stream. Raises EngineUnavailable, EngineOverloaded, or what `Model.check` raises.

        `credit_frames` may be made before the first `grant`; the engine's own `credit_frames` are the default and the
        maximum. Raises ValueError for less than 1. `known_codes` [frames, codebooks] are the stream's first frames if
        they were made before, here or elsewhere: the stream continues after them, but its text is still pushed from the
        beginning. `prompt`: what `check` returned for these parameters, but for the seed; None: they are checked here.

        If the workers die, the stream continues with other workers at the same frame, unless `outlives_workers` is
        False. With `waits`, a stream may also be opened while the workers are being replaced. Waiting streams are
        admitted by turns of their `caller`, and a caller with many slots or KV pages leaves some to others. Caller 0
        stands for nobody in particular and may have all. Streams with known codes are admitted before all others, as
        somebody is listening to them; not with `in_turn`, until they have been heard from here.

        Nobody listens to a `background` stream in real time: it has what others leave, and gives way to them.
        """
        if self.state is not EngineState.READY and not (waits and self.state is EngineState.RESTARTING):
            raise EngineUnavailable(f"the engine is {self.state}; try again later")
        if prompt is None:
            prompt = self.model.check(params)
        if known_codes is not None:
            self.model.check_known(known_codes, params)
        most = self.info.credit_frames
        credit_frames = most if credit_frames is None else min(credit_frames, most)
        opening = Opening(params, prompt, credit_frames, known_codes, outlives_workers, caller, in_turn, background)
        stream = EngineStream(next(self._process.ids), opening, self.model, self.placement)
        if not self._taken.claim(BoardWord.PLACES, max_streams := self.max_streams, BoardWord.KEPT):
            raise EngineOverloaded(f"all {max_streams} streams of the engine are in use; try again later")
        self.placement.add(stream, self)
        return stream

    def open_stored(
        self,
        segments: Sequence[Int16Array],
        past_codes: Int16Array | None = None,
        credit_frames: int | None = None,
    ) -> StoredStream:
        """Open a stream that decodes stored codes, without the talker; `segments` are [frames, codebooks] each.

        `past_codes`, those of a clone's reference, are decoded before each segment, as when the segments were made.
        Credit is as in `open`. If the workers die, the stream continues with others. Raises EngineUnavailable,
        EngineOverloaded, or InvalidSynthesis for codes that no stream of this engine can have made.
        """
        most = self.info.credit_frames
        self.model.check_stored(segments, past_codes)
        if self.state is not EngineState.READY:
            raise EngineUnavailable(f"the engine is {self.state}; try again later")
        if not self._taken.claim(BoardWord.STORED, self.max_stored):
            raise EngineOverloaded(f"all {self.max_stored} places for stored codes are in use; try again later")
        spoken = [codes for codes in segments if len(codes)]
        credit_frames = most if credit_frames is None else min(credit_frames, most)
        stream = StoredStream(next(self._process.ids), self.placement, spoken, past_codes, credit_frames)
        self.placement.add(stream, self)
        self.placement.run(stream)
        return stream

    async def encode_reference(
        self, audio: bytes, *, with_codes: bool, caller: int = 0, holder: int = 0, wait_s: float = 0.0
    ) -> EncodedReference:
        """Encode a recording (WAV, FLAC, Ogg or MP3) for cloning; the codes are for cloning with its transcript.

        `caller`: whose turn it uses. `holder`: who gets the result without an encoding when the recording comes again;
        0 is everybody. `wait_s`: for how long it may wait, if longer than the setting for all.

        Raises UnsupportedTask unless this is a Base checkpoint, InvalidRecording with what was measured,
        EngineOverloaded, EngineUnavailable, or EncodingFailed if the encoder failed at this recording. A recording that
        is cancelled before its turn is not encoded. Live streams do not wait for the encoder.
        """
        self.model.check_clones()
        want = Want.X_VECTOR_AND_CODES if with_codes else Want.X_VECTOR
        answer, spent = await self._link.recordings.encode(self.number, audio, want, caller, holder, wait_s)
        assert answer.x_vector is not None
        return EncodedReference(answer.x_vector, answer.codes, answer.recording, spent)

    async def check_reference(self, audio: bytes, *, caller: int = 0) -> RecordingInfo:
        """Check a recording as `encode_reference` does, and raise the same errors, but do not encode it."""
        self.model.check_clones()
        return (await self._link.recordings.encode(self.number, audio, Want.NOTHING, caller))[0].recording

    def close(self) -> None:
        """Leave the workers. Live streams end."""
        self.change(PairState(self.number, EngineState.CLOSED, "the engine is closed", {}, None))

    # The state of the workers

    def change(self, news: PairState) -> None:
        """Follow the owner's pair to a new state. Only at READY there are workers, which are others than before."""
        self.state, self.can_speak = news.state, None
        if news.endpoint is not None:
            self._endpoint = news.endpoint
            self._traffic.attach(news.endpoint)
            self._measured(news.facts)
            self.placement.on_ready()
        elif news.state is not EngineState.STARTING:
            self.was_tried = True
            try:
                self._traffic.detach()
                running = [stream for stream in self._streams.values() if stream.run_id]
                self._running.clear()
                self.placement.on_death(self, running, news.reason)
            finally:
                if self._endpoint is not None:
                    self._endpoint.close()
                    self._endpoint = None
        self._on_change(self)

    def _measured(self, facts: Facts) -> None:
        """Take what the workers measured into `info`: never more streams than they can make in time for listeners, nor
        more than they measured."""
        talker, codec_s = facts["talker"], facts["code2wav"].get("frame_s")
        self.info = dataclasses.replace(self.info, times_text=talker.get("alignment_head") is not None)
        if not ((step_s := talker.get("step_s")) and codec_s):
            return
        frame_s, in_turns = 1 / self.info.frame_rate_hz, talker.get("in_turns", True)
        factor = real_time_factor(step_s, codec_s, frame_s, in_turns=in_turns)
        self.info = dataclasses.replace(self.info, real_time_factor=factor)
        if factor > 1:
            why = "so callers who ask for a lead are refused: use more cores, a smaller checkpoint or a GPU"
            log.warning("%s: a second of speech takes %.1f s here, %s", self.info.model, factor, why)
        elif talker.get("bounds_streams", True):
            most = listeners(step_s, codec_s, frame_s, in_turns=in_turns)
            max_streams = min(self.config.max_streams, most, max(step_s))
            self._most_in_time = None if talker.get("device") == "cpu" else most  # there each pair has its own cores
            self.info = dataclasses.replace(self.info, max_streams=max_streams)
            log.info(
                "%s: fast enough for %d listeners at once, admits up to %d streams", self.info.model, most, max_streams
            )

    @property
    def public_state(self) -> EngineState:
        """The state that callers are told: workers serve only once they have spoken."""
        if self.state is not EngineState.READY or self.can_speak:
            return self.state
        return EngineState.STARTING if self.can_speak is None else EngineState.FAILED

    @property
    def comes_back(self) -> bool:
        """Whether its workers are being replaced, or new ones have yet to speak for the first time."""
        return self.was_tried and self.public_state in (EngineState.RESTARTING, EngineState.STARTING)

    # How full it is

    def load(self, *, stored: bool = False) -> PairLoad:
        """For a choice among pairs; `stored`: for streams of stored codes."""
        serves = self.state is EngineState.READY and bool(self.can_speak) and not self.is_standby
        if stored:
            return PairLoad(serves, self.num_stored, self.max_stored, self.max_stored)
        return PairLoad(serves, self.num_places, self.num_slots, self.max_streams)

    @property
    def max_streams(self) -> int:
        """How many streams there may be now: fewer than alone while neighbours need some of the GPU's time."""
        if self._most_in_time is None:
            return self.info.max_streams
        left = 1 - sum(other.gpu_time for other in self.neighbours)
        return min(self.info.max_streams, max(1, int(self._most_in_time * left)))  # 1: for a warm-up

    @property
    def gpu_time(self) -> float:
        """The share of its GPU's time that its streams need now; 0 if that was not measured."""
        if self._most_in_time is None or self.state is not EngineState.READY:
            return 0.0
        return self.num_places / self._most_in_time

    @property
    def num_stored(self) -> int:
        """How many streams of stored codes all server processes have."""
        return self._places.num_stored + self._taken.of_others(BoardWord.STORED)

    @property
    def num_places(self) -> int:
        """How many places all server processes have for streams; others also between streams of an utterance."""
        return self._places.num_taken + self._taken.of_others(BoardWord.PLACES, BoardWord.KEPT)

    def keep_places(self, change: int) -> None:
        """Have so many more places count as taken for other server processes: for utterances between two streams."""
        self._taken.tell(BoardWord.KEPT, self._taken.own(BoardWord.KEPT) + change)
        if change < 0:
            self._process.room_freed()

    # For the placement

    def room_for(self, stream: KeptStream, *, queued: bool) -> int:
        if stream.is_stored:
            return self.max_stored - self.num_stored
        spared = self._places.num_spared(stream, self.max_streams)
        return (self.max_streams if queued else self.num_slots) - self.num_places - spared

    def add_stream(self, stream: KeptStream) -> None:
        self._streams[stream.stream_id] = stream
        self._places.take(stream)
        self._tell_taken()

    def remove_stream(self, stream: KeptStream) -> None:
        del self._streams[stream.stream_id]
        self._places.leave(stream)
        self._tell_taken()
        self._process.room_freed()

    def rest(self, stream: KeptStream) -> None:
        self._places.rest(stream)
        self._tell_taken()
        self._process.room_freed()

    def begin(self, stream: KeptStream) -> None:
        if stream in self.resting:
            self._places.take(stream)
            self._tell_taken()
        run_id = next(self._process.ids)  # of this process's engines, since a stream may move between them
        self._running[run_id] = stream
        stream.begin(run_id, time.monotonic(), self._traffic.publish)

    def _tell_taken(self) -> None:
        self._taken.tell(BoardWord.PLACES, self._places.num_taken)
        self._taken.tell(BoardWord.STORED, self._places.num_stored)
        self._taken.tell(BoardWord.STREAMS, len(self._streams))

    # What comes from the workers. Records name a stream by the id of its run.

    def _deliver(self, records: Sequence[PcmRecord]) -> None:
        """Pass records on to their streams, and report to the placement which were heard or ended."""
        now_s = time.monotonic()
        budgets: dict[int, StreamBudget] = {}  # by run id, of streams whose first chunk is in the next batch
        for record in records:
            match record:
                case FirstChunk(run_id):
                    budgets[run_id] = record.budget(now_s)
                case PcmBatch():
                    self._deliver_batch(record, budgets)
                case TextPositions(stream_ids, frames, positions):
                    for run_id, frame, at in zip(stream_ids.tolist(), frames.tolist(), positions.tolist(), strict=True):
                        stream = self._running[run_id]
                        assert isinstance(stream, EngineStream), "only streams with a talker have text positions"
                        assert stream.text_times is not None, "it has asked for them"
                        stream.text_times.add_position(frame, at)
                case SilentStream(run_id, num_frames):
                    self._running[run_id].on_silence(num_frames)
                case EndStream():
                    self._deliver_end(record)

    def _deliver_batch(self, batch: PcmBatch, budgets: dict[int, StreamBudget]) -> None:
        streams = [self._running[run_id] for run_id in batch.stream_ids.tolist()]
        rows = zip(streams, batch.first_frames.tolist(), batch.samples, batch.codes, strict=True)
        for stream, first_frame, samples, codes in rows:
            budget = budgets.pop(stream.run_id, None)  # of the run, of which only a stream's first one counts
            if stream.was_heard:
                budget = None
            stream.deliver(PcmChunk(first_frame, batch.num_frames, samples, codes, budget))
        if self._spoken is not None and not all(stream.is_stored for stream in streams):
            self._tell_spoken(True)
        if self.placement.verdicts.reported:
            self.placement.verdicts.acquit(streams)

    def _deliver_end(self, record: EndStream) -> None:
        stream = self._running.pop(record.stream_id)
        if record.end.reason is FinishReason.YIELDED:
            self.placement.on_yielded(stream)
        elif not stream.has_another_run(record.end):
            self.placement.end(stream, record.end)
        if not self._talks:
            self._tell_spoken(False)

    async def has_spoken(self) -> bool:
        """Wait for audio of the streams that run here; return False if they end before any."""
        if not self._talks:
            return False
        self._spoken = asyncio.get_running_loop().create_future()
        return await self._spoken

    @property
    def _talks(self) -> bool:
        return not all(stream.is_stored for stream in self._running.values())

    def _tell_spoken(self, has_spoken: bool) -> None:
        if self._spoken is not None and not self._spoken.done():
            self._spoken.set_result(has_spoken)
