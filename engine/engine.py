"""The engine as one asyncio object: text in, PCM chunks out, for many streams at once.

Text becomes tokens and a prompt here; the workers get ids alone. Everything runs in the event loop's thread and nothing
blocks it. Knows no gRPC, sessions, paces or encodings.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.checkpoint import Checkpoint, load_checkpoint
from engine.config import EngineConfig
from engine.embeddings import speaker_embedding
from engine.encoder.on_demand import OnDemandEncoder
from engine.encoder.wire import Want
from engine.errors import EngineOverloaded, EngineUnavailable, InvalidSynthesis, UnsupportedTask
from engine.info import engine_info
from engine.ipc.heartbeat import Work
from engine.ipc.messages import (
    CancelStream,
    Command,
    EndStream,
    EndText,
    FirstChunk,
    GrantCredit,
    OpenStream,
    PcmBatch,
    PcmRecord,
    PushText,
    SilentStream,
)
from engine.prompt import layout
from engine.prompt.explain import Explanation, explain_prompt
from engine.prompt.tokenizer import Tokenizer
from engine.prompt.validation import check_speaker
from engine.supervisor import EngineState, Supervisor
from engine.types import (
    EncodedReference,
    FinishReason,
    Float32Array,
    PcmChunk,
    RecordingInfo,
    StreamBudget,
    StreamEnd,
    SynthesisParams,
)

GRANT_LUMP_FRAMES = 8  # so that a stream in step with its listener is not decoded one frame at a time
MAX_CHARS_PER_POSITION = 16  # of text, which is refused beyond before it is looked at; English has about 5 to a token


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What is in flight, all zero when idle; and what the workers did since they came up."""

    num_streams: int
    num_recordings: int  # being encoded or waiting for it
    backlog: int  # commands that wait for room on ring A
    ring_bytes: tuple[int, int, int]  # on rings A, B and C
    work: Mapping[str, Work]  # by the name of the worker


class Engine:
    """One worker pair and its streams: `start`, `open` as many as there is room for, `close`."""

    def __init__(
        self,
        config: EngineConfig,
        checkpoint: Checkpoint,
        tokenizer: Tokenizer,
        on_state: Callable[[EngineState], None],
    ) -> None:
        """Takes nothing; see `start`."""
        self._config = config
        self._checkpoint = checkpoint
        self._tokenizer = tokenizer
        self._on_state = on_state
        self._supervisor = Supervisor(config, checkpoint, self._deliver, self._enter)
        self._encoder = OnDemandEncoder(config, checkpoint)
        self._streams: dict[int, EngineStream] = {}
        self._next_stream_id = 1
        self.state = EngineState.STARTING
        self.info = engine_info(checkpoint, config)

    @classmethod
    async def start(cls, config: EngineConfig, on_state: Callable[[EngineState], None] | None = None) -> "Engine":
        """Start the workers and return when they are ready.

        Raises CheckpointError or EngineError, with nothing left running, if they cannot load.
        """
        checkpoint = load_checkpoint(config.model)
        tokenizer = Tokenizer.load(config.model)
        engine = cls(config, checkpoint, tokenizer, on_state or (lambda state: None))
        engine._on_state(engine.state)
        await engine._supervisor.start()
        return engine

    @property
    def num_streams(self) -> int:
        """Streams that have not ended, those included whose consumer has left."""
        return len(self._streams)

    def stats(self) -> EngineStats:
        supervisor = self._supervisor
        return EngineStats(
            num_streams=self.num_streams,
            num_recordings=self._encoder.num_recordings,
            backlog=supervisor.backlog,
            ring_bytes=supervisor.ring_bytes(),
            work=supervisor.work(),
        )

    def check(self, params: SynthesisParams) -> None:
        """Raise InvalidSynthesis, UnknownSpeaker or UnsupportedTask if `open` would. Takes nothing."""
        num_chars, limit = len(params.reference_text), self._config.max_context
        if num_chars > limit:  # which makes four tokens to a character at most
            raise InvalidSynthesis(
                "reference_text",
                f"reference_text has {num_chars} characters, {limit} is the most; cut the recording and its text",
            )
        layout.check(params, self._checkpoint, self._tokenizer, self._config.max_context)

    def explain(self, params: SynthesisParams, text: str) -> Explanation:
        """What the model would be given. Raises what `check` raises, and InvalidSynthesis if the text is too long."""
        self.check(params)
        return explain_prompt(params, text, self._checkpoint, self._tokenizer, self._config.max_context)

    def open(self, params: SynthesisParams, credit_frames: int | None = None) -> "EngineStream":
        """A new stream. Raises EngineUnavailable, EngineOverloaded, or what `check` raises.

        `credit_frames` may be made before the first `grant`: at most, as by default, the engine's own; less than 1
        raises ValueError.
        """
        limit = self._config.credit_frames
        credit_frames = limit if credit_frames is None else min(credit_frames, limit)
        if credit_frames < 1:  # which would end the talker, and all streams with it
            raise ValueError(f"a stream was opened with a credit of {credit_frames} frames; frame 0 needs 1")
        if self.state is not EngineState.READY:
            raise EngineUnavailable(f"the engine is {self.state}; try again later")
        if self.num_streams >= self._config.max_streams:
            raise EngineOverloaded(f"all {self._config.max_streams} streams of the engine are in use; try again later")
        self.check(params)
        stream_id = self._next_stream_id
        self._next_stream_id += 1
        stream = EngineStream(stream_id, params, self, credit_frames)
        self._streams[stream_id] = stream
        return stream

    async def encode_reference(self, audio: bytes, *, with_codes: bool) -> EncodedReference:
        """What cloning takes out of a recording (WAV, FLAC, Ogg or MP3); codes are for cloning with its transcript.

        Raises UnsupportedTask unless this is a Base checkpoint, InvalidRecording with what was measured,
        EngineOverloaded, EngineUnavailable, or EncodingFailed if the encoder broke at it. One that is cancelled
        before its turn is not encoded. Live streams do not wait for it.
        """
        self._check_clones()
        answer = await self._encoder.encode(audio, Want.X_VECTOR_AND_CODES if with_codes else Want.X_VECTOR)
        assert answer.x_vector is not None
        return EncodedReference(answer.x_vector, answer.codes, answer.recording)

    async def check_reference(self, audio: bytes) -> RecordingInfo:
        """Everything `encode_reference` checks, and raises, without the encoding."""
        self._check_clones()
        return (await self._encoder.encode(audio, Want.NOTHING)).recording

    def speaker_embedding(self, speaker: str) -> Float32Array:
        """The embedding [hidden] of one of the checkpoint's speakers, for mixing. Reads one row of a file.

        Raises UnknownSpeaker, or UnsupportedTask where there are no speakers or no weights.
        """
        check_speaker(speaker, self._checkpoint)
        if self._config.load_format == "dummy":
            raise UnsupportedTask("speaker", f"{self.info.model} has random weights, its speakers have no embedding")
        return speaker_embedding(self._checkpoint, speaker.lower())

    async def close(self) -> None:
        """Stop the workers; streams that are still live end, and recordings that are not encoded."""
        await self._encoder.close()
        await self._supervisor.close()

    def _check_clones(self) -> None:
        if self._checkpoint.speaker_encoder is None:
            raise UnsupportedTask(
                "reference", f"{self.info.model} cannot clone a voice; use one that it has, or load a Base checkpoint"
            )

    def _publish(self, command: Command) -> None:
        self._supervisor.publish(command)

    def _end(self, stream_id: int, end: StreamEnd) -> None:
        """The one place where a stream ends."""
        self._streams.pop(stream_id)._end(end)

    def _deliver(self, records: Sequence[PcmRecord]) -> None:
        now_s = time.monotonic()
        budgets: dict[int, StreamBudget] = {}  # of the streams whose first chunk is in the batch that follows
        for record in records:
            match record:
                case FirstChunk(stream_id):
                    budgets[stream_id] = record.budget(now_s)
                case PcmBatch(stream_ids, first_frames, num_frames, samples):
                    for row, (stream_id, first_frame) in enumerate(
                        zip(stream_ids.tolist(), first_frames.tolist(), strict=True)
                    ):
                        # A copy, so that a slow listener keeps its own row in memory and not the whole batch.
                        budget = budgets.pop(stream_id, None)
                        chunk = PcmChunk(first_frame, num_frames, samples[row].copy(), budget)
                        self._streams[stream_id]._deliver(chunk)
                case SilentStream(stream_id, num_frames):
                    self._streams[stream_id]._on_silence(num_frames)
                case EndStream(stream_id, end):
                    self._end(stream_id, end)

    def _enter(self, state: EngineState, reason: str) -> None:
        self.state = state
        # No stream outlives the workers it was opened with; when new ones are ready there is none.
        for stream_id in list(self._streams):
            self._end(stream_id, _local_end(FinishReason.UNAVAILABLE, f"the engine became unavailable: {reason}"))
        self._on_state(state)


class EngineStream:
    """One utterance. An async context manager: leaving it cancels what has not ended, and waits for nothing."""

    def __init__(self, stream_id: int, params: SynthesisParams, engine: Engine, credit_frames: int) -> None:
        self.stream_id = stream_id
        self.ended = False  # all of it is made, and waits here to be taken
        self._params = params
        self._engine = engine
        self._credit_frames = credit_frames
        self._lump_frames = min(GRANT_LUMP_FRAMES, credit_frames)
        self._tokens = engine._tokenizer.stream()
        self._prompt = layout.PromptAssembler(params, engine._checkpoint, engine._tokenizer)
        self._min_rows = self._prompt.min_rows
        self._num_chars = 0
        self._num_tokens = 0
        self._text_ended = False
        self._sent = False  # to the talker; until then the stream ends here
        self._cancelled = False
        self._silence = ""  # why it was cancelled, if not by its caller
        self._granted_frames = 0  # not yet passed on
        self._events: asyncio.Queue[PcmChunk | StreamEnd] = asyncio.Queue()  # bounded by credit

    def push_text(self, text: str) -> None:
        """Add text. Raises InvalidSynthesis if the utterance grows too long; it can only be cancelled then."""
        if self._cancelled or self.ended:
            return
        if self._text_ended:
            raise RuntimeError("text after end_text")
        self._num_chars += len(text)
        if self._num_chars > MAX_CHARS_PER_POSITION * self._max_context:
            raise InvalidSynthesis(
                "text",
                f"the text has more than {MAX_CHARS_PER_POSITION * self._max_context} characters; split it into "
                "utterances",
            )
        self._take(self._tokens.push(text))

    def flush_text(self) -> None:
        """Speak what is held back because more text could change it, such as the letters of an unfinished word."""
        if not (self._cancelled or self.ended or self._text_ended):
            self._take(self._tokens.flush())

    def end_text(self) -> None:
        """No more text comes. Raises InvalidSynthesis as `push_text` does."""
        if self._cancelled or self.ended or self._text_ended:
            return
        self._text_ended = True
        ids = self._tokens.end()
        if not ids and not self._num_tokens:
            self._engine._end(self.stream_id, _local_end(FinishReason.COMPLETED))  # nothing to say
            return
        self._take(ids, ended=True)

    def grant(self, num_frames: int) -> None:
        """So many more frames may be made. What was granted and not taken stays within `EngineInfo.credit_frames`."""
        self._granted_frames += num_frames
        # Who begins with less credit than a lump waits for less, until it is given more at once.
        self._lump_frames = min(GRANT_LUMP_FRAMES, max(self._lump_frames, num_frames))
        if self._granted_frames < self._lump_frames:
            return
        if not (self._cancelled or self.ended):
            self._engine._publish(GrantCredit(self.stream_id, self._granted_frames))
        self._granted_frames = 0

    def cancel(self) -> None:
        """Stop. No more audio comes, the end does. Does nothing after the end or a second time."""
        if self._cancelled or self.ended:
            return
        self._cancelled = True
        while not self._events.empty():
            self._events.get_nowait()
        if self._sent:
            self._engine._publish(CancelStream(self.stream_id))
        else:
            self._engine._end(self.stream_id, _local_end(FinishReason.CANCELLED))

    async def next_event(self) -> PcmChunk | StreamEnd:
        """The next chunk in order, or the end: exactly one, after which this must not be called again."""
        return await self._events.get()

    def ready_events(self) -> list[PcmChunk | StreamEnd]:
        """What `next_event` would return without a wait, all of it."""
        return [self._events.get_nowait() for _ in range(self._events.qsize())]

    async def __aenter__(self) -> "EngineStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    @property
    def _max_context(self) -> int:
        return self._engine._config.max_context

    def _take(self, ids: list[int], ended: bool = False) -> None:
        self._num_tokens += len(ids)
        if self._params.non_streaming_mode:
            self._fit_max_frames(self._min_rows + self._num_tokens)
        else:
            layout.check_num_tokens(self._num_tokens, self._max_context)
        self._prompt.push_text(ids)
        if ended:
            self._prompt.end_text()
        if self._sent:
            if ids or ended:
                self._engine._publish(PushText(self.stream_id, self._prompt.take_trailing()))
            if ended:
                self._engine._publish(EndText(self.stream_id))
        elif plan := self._prompt.plan():
            sampling = dataclasses.replace(self._params.sampling, max_frames=self._fit_max_frames(plan.num_rows))
            self._engine._publish(
                OpenStream(
                    self.stream_id,
                    plan,
                    sampling,
                    self._credit_frames,
                    time.monotonic(),
                    self._params.x_vector,
                    self._params.reference_codes,
                )
            )
            self._sent = True

    def _fit_max_frames(self, num_rows: int) -> int:
        return layout.fit_max_frames(self._params.sampling, self._engine._checkpoint, num_rows, self._max_context)

    def _deliver(self, chunk: PcmChunk) -> None:
        if not self._cancelled:
            self._events.put_nowait(chunk)

    def _on_silence(self, num_frames: int) -> None:
        """Nothing more is coming: the stream is cancelled, and its end will say why. One that must not end goes on."""
        if not (self._cancelled or self._silence or self._params.sampling.ignore_eos):
            self._silence = f"the model was silent for {num_frames} frames"
            self._engine._publish(CancelStream(self.stream_id))

    def _end(self, end: StreamEnd) -> None:
        self.ended = True
        if self._silence and end.reason is FinishReason.CANCELLED and not self._cancelled:
            end = dataclasses.replace(end, reason=FinishReason.RUNAWAY, detail=self._silence)
        self._events.put_nowait(end)


def _local_end(reason: FinishReason, detail: str = "") -> StreamEnd:
    return StreamEnd(reason, num_frames=0, queue_s=0.0, generation_s=0.0, detail=detail)
