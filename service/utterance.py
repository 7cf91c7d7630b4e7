"""One utterance: spoken by the engine segment after segment, told as messages. Knows no RPC and no other utterance."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from engine import (
    EngineOverloaded,
    EnginePool,
    EngineStream,
    EngineUnavailable,
    FinishReason,
    PcmChunk,
    StreamBudget,
    StreamEnd,
    StreamFailed,
)
from service.audio import AudioWriter, Piece
from service.errors import SlowReader
from service.latency import latency_budget
from service.pace import Pace
from service.playback import Playback
from service.progress import DEFAULT_MS_PER_UNIT, Progress
from service.requests import UtteranceSpec
from service.script import Script, Segment
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from sonorant.tts.v1.latency_pb2 import LatencyBudget

WRITE_TIMEOUT_S = 60.0  # a caller that takes nothing for so long loses its place in the engine
PREFILL_FRAMES = 4  # of a segment whose turn has not come: enough to go on from without a gap

Message: TypeAlias = (
    synthesis_pb2.UtteranceStarted
    | audio_pb2.AudioChunk
    | synthesis_pb2.Marks
    | speak_pb2.FlushDone
    | synthesis_pb2.Warning
    | synthesis_pb2.UtteranceDone
)
_REASONS = {
    FinishReason.COMPLETED: synthesis_pb2.FINISH_REASON_COMPLETED,
    FinishReason.MAX_FRAMES: synthesis_pb2.FINISH_REASON_MAX_AUDIO,
    FinishReason.RUNAWAY: synthesis_pb2.FINISH_REASON_RUNAWAY,
}


class Utterance:
    """The text side (`push_text`, `flush`, `end`, `commit_tail`, `prefill`) never blocks; the audio side is `messages`,
    run by one task. What they raise ends the utterance."""

    def __init__(
        self,
        utterance_id: str,
        spec: UtteranceSpec,
        engine: EnginePool,
        playback: Playback,
        max_lead_ms: int,
        max_chars: int,
        ms_per_unit: float = DEFAULT_MS_PER_UNIT,
    ) -> None:
        self.id = utterance_id
        self.spec = spec.with_seed()
        self.progress = Progress(spec.audio.native_rate_hz, spec.audio.speed, ms_per_unit, respell=spec.lexicon.respell)
        self.played_ms = 0
        self.num_frames = 0  # delivered by the engine
        self.first_audio_ms = 0
        self._engine = engine
        self._playback = playback
        self._pace = Pace(playback, max_lead_ms, self.spec.audio, engine.info)
        self._script = Script(spec.policy, self.progress, max_chars, spec.lexicon)
        self._heard_ms: float | None = None  # known for good
        self._end: StreamEnd | None = None  # of the segment being spoken
        self._started = False
        self._gave_up = False
        self._flush_id = 0
        self._writer = AudioWriter(self.spec.audio)
        self._received_samples = 0  # at the engine's rate
        self._sent_samples = 0  # at the rate of the wire
        self._taken_before = (0, 0)  # samples sent and frames received before this segment
        self._queue_s = 0.0
        self._generation_s = 0.0
        self._engine_budget: StreamBudget | None = None  # of the first audio
        self._encode_s = 0.0  # up to the first audio
        self._budget: LatencyBudget | None = None

    @property
    def ended(self) -> bool:
        """No more text may come."""
        return self._script.ended

    def push_text(self, text: str) -> None:
        """Raises InvalidField or InvalidSynthesis."""
        self._script.push(text)

    def flush(self, flush_id: int, pause_ms: int = 0) -> None:
        """Raises LimitReached, InvalidField or InvalidSynthesis."""
        self._script.flush(flush_id, pause_ms)

    def end(self) -> None:
        """No more text. Idempotent. Raises InvalidSynthesis."""
        self._script.end()

    def commit_tail(self) -> None:
        """No text has come for the time of the policy. Raises InvalidSynthesis."""
        self._script.commit_tail()

    def prefill(self) -> bool:
        """Let the engine begin with the next segment if it is done with those before; True if all is made.

        Raises InvalidSynthesis.
        """
        for number, segment in enumerate(self._script.segments):
            if segment.stream is None:
                if not segment.speakable:
                    if not segment.closed:
                        return False
                    continue
                if number > 0 and self.spec.max_frames_given:  # how many are left is known only in its turn
                    return False
                try:
                    self._open(segment, PREFILL_FRAMES)
                except (EngineOverloaded, EngineUnavailable):  # perhaps no more in its turn
                    return False
            if segment.stream is None or not segment.stream.ended:
                return False
        return self._script.ended

    def abort(self, _call: object = None) -> None:
        """Stop the engine's work at once."""
        for segment in self._script.segments:
            if segment.stream is not None:
                segment.stream.cancel()

    def playback_changed(self) -> None:
        """The listener's position was corrected: audio that was held back may be due."""
        self._pace.changed()

    def silence(self, played_ms: int | None = None) -> None:
        """The listener hears no more of it than this; None = than what it has heard by now."""
        if played_ms is None:
            self._heard_ms = self._heard_by_now_ms()
        else:
            self.played_ms = played_ms
            self._heard_ms = min(played_ms, self._ms(self._sent_samples))

    def handed_over(self, num_samples: int) -> None:
        """The last chunk of `messages`, which was closed before it could be known, did go out."""
        self._sent_samples += num_samples

    async def messages(self) -> AsyncGenerator[Message, None]:
        """From `started` to `done`. Asking for the next one says that the last was handed to gRPC.

        Raises what ended it otherwise: EngineOverloaded, EngineUnavailable, InvalidSynthesis, StreamFailed, SlowReader.
        """
        try:
            while True:
                segment = self._script.segments[0]
                await segment.ready.wait()
                stream = self._in_turn(segment) if segment.speakable else None
                for message in self._start():
                    yield message
                async with aclosing(self._pieces(segment, stream)) as pieces:
                    async for piece in pieces:
                        duration_ms = piece.num_samples * 1000 / self.spec.audio.sample_rate_hz
                        await self._pace.wait(duration_ms)
                        if self.spec.timestamps and (marks := self._marks(duration_ms)):
                            yield marks
                        give_up = asyncio.get_running_loop().call_later(WRITE_TIMEOUT_S, self._give_up)
                        try:
                            yield audio_pb2.AudioChunk(
                                data=piece.data,
                                start_ms=self._ms(self._sent_samples),
                                num_samples=piece.num_samples,
                                flush_id=self._flush_id,
                                budget=self._first_budget() if piece.num_samples else None,
                            )
                        finally:
                            give_up.cancel()
                        if piece.num_samples:
                            self._sent(segment, piece.num_samples, duration_ms)
                reason = self._close(stream) if stream is not None else FinishReason.COMPLETED
                # Of words that were known to be whole only after all their audio had gone out.
                if reason == FinishReason.COMPLETED and self.spec.timestamps and (marks := self._marks(0.0)):
                    yield marks
                if reason != FinishReason.COMPLETED or segment.last:
                    break
                if segment.flush_id is not None:
                    self._flush_id = segment.flush_id
                    yield speak_pb2.FlushDone(flush_id=segment.flush_id, audio_ms=self._ms(self._sent_samples))
                self._script.segments.popleft()
            if not self._script.first_text_s:
                num_chars = self._script.num_chars
                what = f"no letter or digit in {num_chars} characters" if num_chars else "no text"
                yield synthesis_pb2.Warning(code="NO_SPEAKABLE_TEXT", message=f"nothing was spoken: {what}")
            if reason == FinishReason.RUNAWAY and self._end is not None:
                yield synthesis_pb2.Warning(code="RUNAWAY", message=self._end.detail)
            yield synthesis_pb2.UtteranceDone(reason=_REASONS[reason], stats=self.stats(reason))
        finally:
            self.abort()

    def stats(self, reason: FinishReason) -> synthesis_pb2.SynthesisStats:
        num_chars, sent_ms = self._script.num_chars, self._ms(self._sent_samples)
        audio_ms = self._received_samples * 1000 // self.spec.audio.native_rate_hz
        generation_ms = round(self._generation_s * 1000)
        if reason == FinishReason.COMPLETED:
            spoken_chars = num_chars
        else:
            heard_ms = self._heard_by_now_ms() if reason == FinishReason.CANCELLED else sent_ms
            spoken_chars = self.progress.position(heard_ms)
        return synthesis_pb2.SynthesisStats(
            input_chars=num_chars,
            audio_ms=audio_ms,
            sent_ms=sent_ms,
            played_ms=self.played_ms,
            spoken_chars=spoken_chars,
            queue_ms=round(self._queue_s * 1000),
            first_audio_ms=self.first_audio_ms,
            generation_ms=generation_ms,
            codec_frames=self.num_frames,
            real_time_factor=generation_ms / audio_ms if audio_ms else 0.0,
            first_audio_budget=self._budget,
        )

    def _first_budget(self) -> LatencyBudget | None:
        """What the first samples say of the way they took; None for all others."""
        if self._budget is not None or self._engine_budget is None:
            return None
        self._budget = latency_budget(self._script.first_text_s, self._engine_budget, self._encode_s, time.monotonic())
        return self._budget

    def _heard_by_now_ms(self) -> float:
        if self._heard_ms is not None:
            return self._heard_ms
        return self._ms(self._sent_samples) - self._playback.unheard_ms(self.id)

    def _open(self, segment: Segment, credit_frames: int) -> EngineStream:
        params = self.spec.params
        if self.spec.max_frames_given:  # for the utterance, not for each of its segments
            left = params.sampling.max_frames - self.num_frames
            params = replace(params, sampling=replace(params.sampling, max_frames=left))
        stream = self._engine.open(params, credit_frames)
        segment.attach(stream, credit_frames)
        return stream

    def _in_turn(self, segment: Segment) -> EngineStream:
        self._taken_before = (self._sent_samples, self.num_frames)
        stream = segment.stream or self._open(segment, self._pace.ahead_frames())
        self._grant(segment)
        return stream

    def _start(self) -> Iterable[Message]:
        """What comes first, once."""
        if self._started:
            return
        self._started = True
        yield synthesis_pb2.UtteranceStarted(
            audio=self.spec.audio.to_proto(),
            voice_id=self.spec.voice_id,
            seed=self.spec.params.sampling.seed,
            replay=self.spec.replay(),
            checkpoint=self.spec.info.fingerprint,
        )
        for warned in self.spec.warnings:
            yield warned.to_proto()

    async def _pieces(self, segment: Segment, stream: EngineStream | None) -> AsyncGenerator[Piece, None]:
        """The audio of one segment, to the end of its stream if it has one."""
        self._end = None
        if stream is None:
            self.progress.end_audio()
            pieces = deque(self._after(segment))
        else:
            pieces = deque(self._writer.begin())
        while pieces or (stream is not None and self._end is None):
            if stream is not None and self._end is None:
                # All that is there, so that the end is known as early as it can be.
                for event in stream.ready_events() or (() if pieces else (await stream.next_event(),)):
                    pieces += self._receive(event, segment)
            if self._gave_up:
                return
            if pieces:
                yield self._joined(pieces)

    def _receive(self, event: PcmChunk | StreamEnd, segment: Segment) -> list[Piece]:
        if isinstance(event, PcmChunk):
            self.num_frames += event.num_frames
            self._received_samples += len(event.samples)
            self.progress.push_audio(event.samples)
            if self._budget is None:
                return self._push_first(event)
            return self._writer.push(event.samples)
        self._end = event
        if event.reason != FinishReason.COMPLETED:
            return self._writer.end()
        self.progress.end_audio()
        return self._after(segment)

    def _after(self, segment: Segment) -> list[Piece]:
        """What follows the speech of a segment: a pause, and whatever the stages of the audio still hold."""
        if segment.last:
            return self._writer.end()
        pieces: list[Piece] = []
        if segment.pause_ms and self._received_samples:
            rate_hz = self.spec.audio.native_rate_hz * self.spec.audio.speed
            silence = np.zeros(round(segment.pause_ms * rate_hz / 1000), np.int16)
            self.progress.push_audio(silence)
            pieces = self._writer.push(silence)
        elif segment.stream is None:
            return []
        return pieces + self._writer.flush()

    def _push_first(self, chunk: PcmChunk) -> list[Piece]:
        """One that comes before anything was heard."""
        start_s = time.monotonic()
        pieces = self._writer.push(chunk.samples)
        self._encode_s += time.monotonic() - start_s
        self._engine_budget = self._engine_budget or chunk.budget
        return pieces

    def _joined(self, pieces: deque[Piece]) -> Piece:
        """The next piece, and with it more of those that are there, if that is allowed."""
        first = pieces.popleft()
        if not self.spec.audio.may_join or not first.num_samples:
            return first
        limit = self._pace.max_chunk_ms * self.spec.audio.sample_rate_hz // 1000
        data, num_samples = [first.data], first.num_samples
        while pieces and pieces[0].num_samples and num_samples + pieces[0].num_samples <= limit:
            piece = pieces.popleft()
            data.append(piece.data)
            num_samples += piece.num_samples
        return Piece(b"".join(data), num_samples) if len(data) > 1 else first

    def _marks(self, duration_ms: float) -> synthesis_pb2.Marks | None:
        """Of the words that begin in the audio that goes out next."""
        words = self.progress.tell(self._sent_samples * 1000 / self.spec.audio.sample_rate_hz + duration_ms)
        if not words:
            return None
        return synthesis_pb2.Marks(
            marks=[
                synthesis_pb2.Mark(
                    text=word.text,
                    text_start=word.start,
                    text_end=word.end,
                    start_ms=word.start_ms,
                    end_ms=word.end_ms,
                    estimated=True,
                )
                for word in words
            ]
        )

    def _close(self, stream: EngineStream) -> FinishReason:
        """What the end of a stream means for the utterance."""
        if self._gave_up:
            raise SlowReader(f"no audio was taken for {WRITE_TIMEOUT_S:g} s; read faster, or cancel what is not wanted")
        end = self._end
        assert end is not None, "its pieces come to the end"
        self._queue_s += end.queue_s
        self._generation_s += end.generation_s
        if end.reason in _REASONS:
            return end.reason
        if end.reason is FinishReason.UNAVAILABLE:
            raise EngineUnavailable(end.detail or "the engine stopped; try again")
        raise StreamFailed(end.detail or f"the engine ended stream {stream.stream_id} with {end.reason.name}")

    def _sent(self, segment: Segment, num_samples: int, duration_ms: float) -> None:
        if self._sent_samples == 0:
            self.first_audio_ms = round((time.monotonic() - self._script.first_text_s) * 1000)
        self._sent_samples += num_samples
        self._playback.sent(self.id, duration_ms)
        if segment.stream is not None:  # else it is a pause
            self._grant(segment)

    def _grant(self, segment: Segment) -> None:
        """Let the engine make what may be sent soon."""
        assert segment.stream is not None, "it is being spoken"
        audio = self.spec.audio
        samples_before, frames_before = self._taken_before
        taken_samples = (
            (self._sent_samples - samples_before) * audio.native_rate_hz * audio.speed / audio.sample_rate_hz
        )
        # What was padded, or rounded up, is nothing that the engine made.
        taken_frames = min(int(taken_samples / self._engine.info.frame_samples), self.num_frames - frames_before)
        more = taken_frames + self._pace.ahead_frames() - segment.allowed_frames
        if more > 0:
            segment.stream.grant(more)
            segment.allowed_frames += more

    def _give_up(self) -> None:
        self._gave_up = True
        self.abort()

    def _ms(self, num_samples: int) -> int:
        return num_samples * 1000 // self.spec.audio.sample_rate_hz
