"""One utterance: text gathered in segments, spoken by the engine, told as messages. Knows no RPC, no other utterance.

A flush ends a segment. Each segment is an engine stream of its own, spoken to its end before the next one begins, which
is what "speak everything received so far" takes: the model speaks the last words only once it knows that they are.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from engine import (
    Engine,
    EngineState,
    EngineStream,
    EngineUnavailable,
    FinishReason,
    StreamEnd,
    StreamFailed,
)
from service.audio import AudioWriter, Piece
from service.errors import LimitReached, SlowReader
from service.playback import Playback
from service.requests import UtteranceSpec
from service.text import check_characters, check_length, is_speakable
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2

MAX_PENDING_FLUSHES = 64
WRITE_TIMEOUT_S = 60.0  # a caller that takes nothing for so long loses its place in the engine

Message: TypeAlias = (
    synthesis_pb2.UtteranceStarted
    | audio_pb2.AudioChunk
    | speak_pb2.FlushDone
    | synthesis_pb2.Warning
    | synthesis_pb2.UtteranceDone
)
_REASONS = {
    FinishReason.COMPLETED: synthesis_pb2.FINISH_REASON_COMPLETED,
    FinishReason.MAX_FRAMES: synthesis_pb2.FINISH_REASON_MAX_AUDIO,
}


@dataclass(slots=True, eq=False)
class _Segment:
    """Text between two flushes. It is held until something in it can be spoken, then goes to the engine as it comes."""

    held: list[str] = field(default_factory=list)
    speakable: bool = False
    closed: bool = False
    flush_id: int | None = None  # of the flush that closed it; None = the end of the utterance did
    ready: asyncio.Event = field(default_factory=asyncio.Event)  # there is something to say, or there never will be
    stream: EngineStream | None = None

    def push(self, text: str) -> None:
        if self.stream is not None:
            self.stream.push_text(text)
            return
        self.held.append(text)
        if is_speakable(text):
            self.speakable = True
            self.ready.set()

    def close(self, flush_id: int | None) -> None:
        self.closed = True
        self.flush_id = flush_id
        self.ready.set()
        if self.stream is not None:
            self.stream.end_text()

    def attach(self, stream: EngineStream) -> None:
        self.stream = stream
        stream.push_text("".join(self.held))
        self.held.clear()
        if self.closed:
            stream.end_text()


class Utterance:
    """The text side (`push_text`, `flush`, `end`) never blocks; the audio side is `messages`, run by one task."""

    def __init__(
        self,
        utterance_id: str,
        spec: UtteranceSpec,
        engine: Engine,
        playback: Playback,
        max_lead_ms: int,
        max_chars: int,
    ) -> None:
        self.id = utterance_id
        self.spec = spec.with_seed()
        self.played_ms = 0
        self.num_chars = 0
        self.num_frames = 0  # delivered by the engine
        self.first_audio_ms = 0
        self._engine = engine
        self._playback = playback
        self._max_lead_ms = max_lead_ms
        self._max_chars = max_chars
        self._segments = deque([_Segment()])
        self._stream: EngineStream | None = None  # the latest
        self._end: StreamEnd | None = None  # of the latest stream
        self._ended = False
        self._started = False
        self._gave_up = False
        self._pace_changed = asyncio.Event()
        self._flush_id = 0
        self._first_text_s = 0.0
        self._writer = AudioWriter(self.spec.audio)
        self._received_samples = 0  # at the engine's rate
        self._sent_samples = 0  # at the rate of the wire
        self._taken_before = (0, 0)  # samples sent and frames received before the latest stream
        self._granted_frames = 0  # to the latest stream
        self._queue_s = 0.0
        self._generation_s = 0.0

    def push_text(self, text: str) -> None:
        """Raises InvalidField or InvalidSynthesis; the utterance cannot go on then."""
        check_length(self.num_chars + len(text), self._max_chars, "text")
        check_characters(text, "text")
        self.num_chars += len(text)
        segment = self._segments[-1]
        segment.push(text)
        if segment.speakable and not self._first_text_s:
            self._first_text_s = time.monotonic()

    def flush(self, flush_id: int) -> None:
        """Raises LimitReached or InvalidSynthesis; the utterance cannot go on then."""
        if len(self._segments) > MAX_PENDING_FLUSHES:
            raise LimitReached("flushes", f"{MAX_PENDING_FLUSHES} flushes wait to be spoken; flush less often")
        self._segments[-1].close(flush_id)
        self._segments.append(_Segment())

    def end(self) -> None:
        """No more text. Idempotent. Raises InvalidSynthesis; the utterance cannot go on then."""
        if not self._ended:
            self._ended = True
            self._segments[-1].close(None)

    def abort(self, _call: object = None) -> None:
        """Stop the engine's work at once, for when it is not certain how soon `messages` is closed."""
        if self._stream is not None:
            self._stream.cancel()

    def playback_changed(self) -> None:
        """The listener's position was corrected: audio that was held back may be due."""
        self._pace_changed.set()

    async def messages(self) -> AsyncGenerator[Message, None]:
        """From `started` to `done`. Asking for the next one says that the last was handed to gRPC.

        Raises what ended it otherwise: EngineOverloaded, EngineUnavailable, InvalidSynthesis, StreamFailed, SlowReader.
        """
        reason = FinishReason.COMPLETED
        while True:
            segment = self._segments[0]
            await segment.ready.wait()
            if segment.speakable:
                async with self._open() as stream, aclosing(self._speak(stream, segment)) as pieces:
                    segment.attach(stream)
                    for message in self._start():
                        yield message
                    async for piece in pieces:
                        async with self._sending(piece) as chunk:
                            yield chunk
                reason = self._close(stream)
            else:
                for message in self._start():
                    yield message
                for piece in self._writer.end() if segment.flush_id is None else ():
                    async with self._sending(piece) as chunk:
                        yield chunk
            if reason != FinishReason.COMPLETED or segment.flush_id is None:
                break
            self._flush_id = segment.flush_id
            yield speak_pb2.FlushDone(flush_id=segment.flush_id, audio_ms=self._ms(self._sent_samples))
            self._segments.popleft()
        if not self._first_text_s:
            what = f"no letter or digit in {self.num_chars} characters" if self.num_chars else "no text"
            yield synthesis_pb2.Warning(code="NO_SPEAKABLE_TEXT", message=f"nothing was spoken: {what}")
        yield synthesis_pb2.UtteranceDone(reason=_REASONS[reason], stats=self.stats(reason))

    def stats(self, reason: FinishReason) -> synthesis_pb2.SynthesisStats:
        audio_ms = self._received_samples * 1000 // self.spec.audio.native_rate_hz
        generation_ms = round(self._generation_s * 1000)
        return synthesis_pb2.SynthesisStats(
            input_chars=self.num_chars,
            audio_ms=audio_ms,
            sent_ms=self._ms(self._sent_samples),
            played_ms=self.played_ms,
            spoken_chars=self.num_chars if reason == FinishReason.COMPLETED else 0,
            queue_ms=round(self._queue_s * 1000),
            first_audio_ms=self.first_audio_ms,
            generation_ms=generation_ms,
            codec_frames=self.num_frames,
            real_time_factor=generation_ms / audio_ms if audio_ms else 0.0,
        )

    def _open(self) -> EngineStream:
        params = self.spec.params
        if self.spec.max_frames_given:  # for the utterance, not for each of its segments
            left = params.sampling.max_frames - self.num_frames
            params = replace(params, sampling=replace(params.sampling, max_frames=left))
        self._stream = self._engine.open(params)
        self._taken_before = (self._sent_samples, self.num_frames)
        self._granted_frames = 0
        return self._stream

    def _start(self) -> Iterable[Message]:
        """What comes first, once."""
        if self._started:
            return
        self._started = True
        yield synthesis_pb2.UtteranceStarted(
            audio=self.spec.audio.to_proto(), voice_id=self.spec.voice_id, seed=self.spec.params.sampling.seed
        )
        for warned in self.spec.warnings:
            yield warned.to_proto()

    async def _speak(self, stream: EngineStream, segment: _Segment) -> AsyncGenerator[Piece, None]:
        """The audio of one segment, to the end of its stream."""
        for piece in self._writer.begin():
            yield piece
        self._end = None
        while self._end is None:
            event = await stream.next_event()
            if isinstance(event, StreamEnd):
                self._end = event
                goes_on = event.reason == FinishReason.COMPLETED and segment.flush_id is not None
                pieces = self._writer.flush() if goes_on else self._writer.end()
            else:
                self.num_frames += event.num_frames
                self._received_samples += len(event.samples)
                pieces = self._writer.push(event.samples)
            for piece in pieces:
                yield piece

    @asynccontextmanager
    async def _sending(self, piece: Piece) -> AsyncIterator[audio_pb2.AudioChunk]:
        """A piece as a chunk that is due; it was taken when the block is left."""
        duration_ms = piece.num_samples * 1000 / self.spec.audio.sample_rate_hz
        await self._pace(duration_ms)
        give_up = asyncio.get_running_loop().call_later(WRITE_TIMEOUT_S, self._give_up)
        try:
            yield audio_pb2.AudioChunk(
                data=piece.data,
                start_ms=self._ms(self._sent_samples),
                num_samples=piece.num_samples,
                flush_id=self._flush_id,
            )
        finally:
            give_up.cancel()
        if piece.num_samples:
            self._sent(piece.num_samples, duration_ms)

    def _close(self, stream: EngineStream) -> FinishReason:
        """What the end of a stream means for the utterance."""
        end = self._end
        assert end is not None, "_speak runs to the end"
        self._queue_s += end.queue_s
        self._generation_s += end.generation_s
        if self._gave_up:
            raise SlowReader(f"no audio was taken for {WRITE_TIMEOUT_S:g} s; read faster, or cancel what is not wanted")
        if end.reason in _REASONS:
            return end.reason
        if self._engine.state != EngineState.READY:
            raise EngineUnavailable(end.detail or "the engine stopped; try again")
        raise StreamFailed(end.detail or f"the engine ended stream {stream.stream_id} with {end.reason.name}")

    async def _pace(self, duration_ms: float) -> None:
        """Wait until this much audio may be sent without going too far ahead of the listener."""
        while wait_s := self._playback.wait_s(duration_ms, self._max_lead_ms):
            self._pace_changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._pace_changed.wait()

    def _sent(self, num_samples: int, duration_ms: float) -> None:
        if self._sent_samples == 0:
            self.first_audio_ms = round((time.monotonic() - self._first_text_s) * 1000)
        self._sent_samples += num_samples
        self._playback.sent(self.id, duration_ms)
        self._grant()

    def _grant(self) -> None:
        """Let the engine replace the frames whose audio was taken."""
        assert self._stream is not None, "audio comes of a stream"
        audio = self.spec.audio
        samples_before, frames_before = self._taken_before
        taken_samples = (
            (self._sent_samples - samples_before) * audio.native_rate_hz * audio.speed / audio.sample_rate_hz
        )
        # What was padded, or rounded up, is nothing that the engine made.
        taken_frames = min(int(taken_samples / self._engine.info.frame_samples), self.num_frames - frames_before)
        self._stream.grant(taken_frames - self._granted_frames)
        self._granted_frames = taken_frames

    def _give_up(self) -> None:
        self._gave_up = True
        self.abort()

    def _ms(self, num_samples: int) -> int:
        return num_samples * 1000 // self.spec.audio.sample_rate_hz
