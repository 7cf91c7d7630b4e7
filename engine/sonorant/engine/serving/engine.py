"""The engine as one asyncio object: text in, PCM chunks out, for many streams at once.

Everything runs in the event loop's thread and nothing blocks it. Knows no gRPC, sessions, pacing or audio encodings.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.embeddings import largest_value, speaker_embedding
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder.wire import Want
from sonorant.engine.errors import EngineOverloaded, EngineUnavailable, InvalidSynthesis, UnsupportedTask
from sonorant.engine.ipc.heartbeat import Work
from sonorant.engine.owner.board import Word
from sonorant.engine.prompt import layout
from sonorant.engine.prompt.explain import Explanation, explain_prompt
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.prompt.validation import check_size_of_embedding, check_speaker
from sonorant.engine.serving.info import engine_info
from sonorant.engine.serving.keeping import KeptStream, check_codes
from sonorant.engine.serving.owner_link import OwnerLink
from sonorant.engine.serving.placement import Placement
from sonorant.engine.serving.places import Places
from sonorant.engine.serving.runs import Runs
from sonorant.engine.serving.stored import StoredStream
from sonorant.engine.serving.stream import EngineStream, Opening, check_known_codes
from sonorant.engine.serving.stream_text import StreamModel
from sonorant.engine.serving.traffic import Traffic
from sonorant.engine.sizes import listeners
from sonorant.engine.types import (
    LARGEST_VALUE,
    EncodedReference,
    Float32Array,
    Int16Array,
    RecordingInfo,
    SynthesisParams,
)
from sonorant.engine.workers.state import EngineState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What is in flight, all zero when idle, and the workers' totals since they started."""

    num_streams: int  # of all server processes
    backlog: int  # commands that wait for room on ring A
    ring_bytes: tuple[int, int, int]  # on rings A, B and C
    work: Mapping[str, Work]  # by the name of the worker


@dataclass(frozen=True, slots=True)
class Texts:
    """What a server process reads of a checkpoint."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer

    @classmethod
    def read(cls, folder: Path) -> "Texts":
        """Takes a tenth of a second or more. Raises CheckpointError."""
        checkpoint = load_checkpoint(folder)
        return cls(checkpoint, Tokenizer.load(folder, checkpoint.characters))


class Engine:
    """A worker pair of the owner, and this process's streams: `start` it, `open` streams while there is room, `close`
    it.
    """

    placement: Placement  # of its own streams alone, until the pool sets that of all replicas

    def __init__(
        self,
        config: EngineConfig,
        texts: Texts,
        on_state: Callable[[EngineState], None],
        link: OwnerLink,
        number: int = 0,
    ) -> None:
        """Use `Engine.start`. `number`: of the pair in the server."""
        self.number = number
        self._config = config
        self._checkpoint = checkpoint = texts.checkpoint
        frame_ms = 1000 / checkpoint.frame_rate_hz
        self._model = StreamModel(checkpoint, texts.tokenizer, config.talker.max_context, frame_ms)
        self.num_slots, self.max_stored = config.talker.num_slots, config.code2wav.stored_streams
        self._on_state = on_state
        self._process = link.process
        self._taken = link.process.entry(number)
        self._pair = link.follow(number, self._enter)
        self._traffic = Traffic(
            checkpoint.name,
            lambda records: self._runs.deliver(records, self.placement),
            self._pair.report_down,
        )
        self._recordings = link.recordings
        self._streams: dict[int, KeptStream] = {}  # all streams whose home is this pair
        self._runs = Runs(self._traffic.publish, link.process.ids)
        self._places = Places()
        self.resting = self._places.resting
        self.is_standby = config.is_standby
        self.neighbours: Sequence[Engine] = ()  # other pairs of the pool on this GPU, with which it shares its time
        self._most_in_time: int | None = None  # streams that the workers, alone on their GPU, can make in time
        self.placement = Placement([self], link.verdicts, link.process.set_waiting)
        self._largest_value = LARGEST_VALUE
        if config.load_format != "dummy":
            self._largest_value = min(LARGEST_VALUE, largest_value(checkpoint))
        self.state = EngineState.STARTING
        self.info = engine_info(checkpoint, config)

    @classmethod
    def start(
        cls,
        config: EngineConfig,
        texts: Texts,
        on_state: Callable[[EngineState], None],
        link: OwnerLink,
        number: int = 0,
    ) -> "Engine":
        """Return when the state of pair `number` is known. `texts`: of the config's model."""
        engine = cls(config, texts, on_state, link, number)
        on_state(engine.state)
        engine._pair.start()
        return engine

    @property
    def num_streams(self) -> int:
        """The number of streams that have not ended, including those whose caller has left."""
        return len(self._streams)

    def stats(self) -> EngineStats:
        seat = self._pair.seat
        return EngineStats(
            num_streams=self.num_streams + self._taken.of_others(Word.STREAMS),
            backlog=self._traffic.backlog,
            ring_bytes=(0, 0, 0) if seat is None else seat.ring_bytes(),
            work={} if seat is None else seat.work(),
        )

    def check(self, params: SynthesisParams) -> None:
        """Raise InvalidSynthesis, UnknownSpeaker or UnsupportedTask if `open` would. Opens nothing."""
        self._prompt_of(params)

    def _prompt_of(self, params: SynthesisParams) -> layout.PromptLayout:
        """Return the layout of the prompt. Raises what `check` raises."""
        num_chars, limit = len(params.reference_text), self._config.talker.max_context
        if num_chars > limit:  # a character makes up to four tokens, so this bounds the pickled ids of OpenStream
            raise InvalidSynthesis(
                "reference_text",
                f"reference_text has {num_chars} characters, but {limit} is the most; shorten the recording and its "
                "text",
            )
        prompt = layout.check(params, self._checkpoint, self._model.tokenizer, limit)
        if params.x_vector is not None:
            check_size_of_embedding(params.x_vector, self._largest_value, self._checkpoint)
        return prompt

    def explain(self, params: SynthesisParams, text: str, written: str | None = None) -> Explanation:
        """Explain the model's input for a text; `written`: the text before phrases in it were respelled.

        Raises InvalidSynthesis if it is too long, and what `check` raises.
        """
        self.check(params)
        max_context = self._config.talker.max_context
        return explain_prompt(params, text, self._checkpoint, self._model.tokenizer, max_context, written)

    def open(
        self,
        params: SynthesisParams,
        credit_frames: int | None = None,
        known_codes: Int16Array | None = None,
        *,
        outlives_workers: bool = True,
        waits: bool = False,
        caller: int = 0,
        in_turn: bool = False,
        background: bool = False,
    ) -> EngineStream:
        """Open a new stream. Raises EngineUnavailable, EngineOverloaded, or what `check` raises.

        `credit_frames` may be made before the first `grant`; the engine's own `credit_frames` are the default and the
        maximum. Raises ValueError for less than 1. `known_codes` [frames, codebooks] are the stream's first frames if
        they were made before, here or elsewhere: the stream continues after them, but its text is still pushed from the
        beginning.

        If the workers die, the stream continues with other workers at the same frame, unless `outlives_workers` is
        False. With `waits`, a stream may also be opened while the workers are being replaced. Waiting streams are
        admitted by turns of their `caller`, and a caller with many slots or KV pages leaves some to others. Caller 0
        stands for nobody in particular and may have all. Streams with known codes are admitted before all others, as
        somebody is listening to them; not with `in_turn`, until they have been heard from here.

        Nobody listens to a `background` stream in real time: it has what others leave, and gives way to them.
        """
        limit = self._config.talker.credit_frames
        credit_frames = limit if credit_frames is None else min(credit_frames, limit)
        if credit_frames < 1:  # would make the talker fail, and all streams with it
            raise ValueError(f"a stream was opened with a credit of {credit_frames} frames; frame 0 needs 1")
        if self.state is not EngineState.READY and not (waits and self.state is EngineState.RESTARTING):
            raise EngineUnavailable(f"the engine is {self.state}; try again later")
        if self.num_places >= self.max_streams:
            raise EngineOverloaded(f"all {self.max_streams} streams of the engine are in use; try again later")
        prompt = self._prompt_of(params)
        if known_codes is not None:
            check_known_codes(known_codes, params, self._checkpoint)
        opening = Opening(params, prompt, credit_frames, known_codes, outlives_workers, caller, in_turn, background)
        stream = EngineStream(next(self._process.ids), opening, self._model, self.placement)
        if not self._taken.claim(Word.PLACES, self.max_streams, Word.KEPT):
            raise EngineOverloaded(f"all {self.max_streams} streams of the engine are in use; try again later")
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
        limit = self._config.talker.credit_frames
        credit_frames = limit if credit_frames is None else min(credit_frames, limit)
        if credit_frames < 1:
            raise ValueError(f"stored codes were opened with a credit of {credit_frames} frames; frame 0 needs 1")
        max_context, num_past = self._config.talker.max_context, 0 if past_codes is None else len(past_codes)
        for codes in segments if past_codes is None else [*segments, past_codes]:
            check_codes("codes", codes, self._checkpoint)
        if (longest := max(map(len, segments), default=0) + num_past) > max_context:
            raise InvalidSynthesis(
                "codes",
                f"a segment has {longest} frames, past_codes included; max_context allows {max_context}",
            )
        if longest == num_past:
            raise InvalidSynthesis("codes", "these codes have no frames")
        if self.state is not EngineState.READY:
            raise EngineUnavailable(f"the engine is {self.state}; try again later")
        if not self._taken.claim(Word.STORED, self.max_stored):
            raise EngineOverloaded(f"all {self.max_stored} places for stored codes are in use; try again later")
        spoken = [codes for codes in segments if len(codes)]
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
        self._check_clones()
        want = Want.X_VECTOR_AND_CODES if with_codes else Want.X_VECTOR
        answer, spent = await self._recordings.encode(self.number, audio, want, caller, holder, wait_s)
        assert answer.x_vector is not None
        return EncodedReference(answer.x_vector, answer.codes, answer.recording, spent)

    async def check_reference(self, audio: bytes, *, caller: int = 0) -> RecordingInfo:
        """Check a recording as `encode_reference` does, and raise the same errors, but do not encode it."""
        self._check_clones()
        return (await self._recordings.encode(self.number, audio, Want.NOTHING, caller))[0].recording

    def speaker_embedding(self, speaker: str) -> Float32Array:
        """Return the embedding [hidden] of one of the checkpoint's speakers, for mixing. Reads one row of a file.

        Raises UnknownSpeaker, or UnsupportedTask if the checkpoint has no speakers or no weights.
        """
        check_speaker(speaker, self._checkpoint)
        if self._config.load_format == "dummy":
            raise UnsupportedTask("speaker", f"{self.info.model} has random weights; its speakers have no embeddings")
        return speaker_embedding(self._checkpoint, speaker.lower())

    async def has_spoken(self) -> bool:
        """Wait for audio of the streams that run here; return False if they end or the workers go down before any."""
        return await self._runs.has_spoken()

    def close(self) -> None:
        """Leave the workers. Live streams end."""
        self._pair.close()

    def _check_clones(self) -> None:
        if self._checkpoint.speaker_encoder is None:
            raise UnsupportedTask(
                "reference", f"{self.info.model} cannot clone a voice; use one that it has, or load a Base checkpoint"
            )

    def _measured(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what the workers measured into `info`: never more streams than they can make in time for listeners, nor
        more than they measured."""
        self.info = dataclasses.replace(self.info, times_text=facts["talker"].get("alignment_head") is not None)
        step_s, codec_s = facts["talker"].get("step_s"), facts["code2wav"].get("frame_s")
        if step_s and codec_s:
            most = listeners(step_s, codec_s, 1 / self.info.frame_rate_hz)
            self._most_in_time = most
            max_streams = min(self._config.max_streams, most, max(step_s))
            self.info = dataclasses.replace(self.info, max_streams=max_streams)
            log.info(
                "%s: fast enough for %d listeners at once, admits up to %d streams", self.info.model, most, max_streams
            )

    # For the placement

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
        return self._places.num_stored + self._taken.of_others(Word.STORED)

    @property
    def num_places(self) -> int:
        """How many places all server processes have for streams; others also between streams of an utterance."""
        return self._places.num_taken + self._taken.of_others(Word.PLACES, Word.KEPT)

    def keep_places(self, change: int) -> None:
        """Have so many more places count as taken for other server processes: for utterances between two streams."""
        self._taken.tell(Word.KEPT, self._taken.own(Word.KEPT) + change)
        if change < 0:
            self._process.room_freed()

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
        self._runs.begin(stream)

    def _tell_taken(self) -> None:
        self._taken.tell(Word.PLACES, self._places.num_taken)
        self._taken.tell(Word.STORED, self._places.num_stored)
        self._taken.tell(Word.STREAMS, len(self._streams))

    # What comes from the workers

    def _enter(self, state: EngineState, reason: str) -> None:
        if state is EngineState.READY:
            self.state = state
            seat = self._pair.seat
            assert seat is not None
            self._traffic.attach(seat)
            self._measured(self._pair.facts)
            self.placement.on_ready()
        else:
            self._traffic.detach()
            self.state = state
            running = [stream for stream in self._streams.values() if stream.run_id]
            self._runs.abandon()
            self.placement.on_death(self, running, reason)
            self._runs.tell_if_idle()
        self._on_state(state)
