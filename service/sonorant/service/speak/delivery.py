"""The audio of one utterance on its way out: from the engine's streams through encoding and pacing to who sends it."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np

from sonorant.engine import (
    EngineOverloaded,
    EngineStream,
    EngineUnavailable,
    FinishReason,
    Int16Array,
    PcmChunk,
    StreamEnd,
    StreamFailed,
)
from sonorant.service.audio.writer import AudioWriter, Piece
from sonorant.service.speak.credit import Credit
from sonorant.service.speak.pacer import Pacer
from sonorant.service.speak.resumption import Resumption, Skipped
from sonorant.service.speak.segments import Segment, Segments
from sonorant.service.speak.state import UtteranceState
from sonorant.service.speak.statistics import Statistics
from sonorant.service.speak.word_times import WordTimes
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2

Message: TypeAlias = (
    synthesis_pb2.UtteranceStarted
    | audio_pb2.AudioChunk
    | synthesis_pb2.Marks
    | speak_pb2.FlushDone
    | synthesis_pb2.Warning
)
_ENDS_WELL = (FinishReason.COMPLETED, FinishReason.MAX_FRAMES, FinishReason.RUNAWAY)


class Send(Protocol):
    async def __call__(self, message: Message, on_taken: Callable[[], None] | None = None) -> None:
        """Returns when gRPC has the message; `on_taken` is called once it cannot be taken back."""


class Delivery:
    def __init__(
        self,
        state: UtteranceState,
        segments: Segments,
        word_times: WordTimes,
        pacer: Pacer,
        statistics: Statistics,
    ) -> None:
        self._state = state
        self._audio = state.spec.audio
        self._segments = segments
        self._word_times = word_times
        self._pacer = pacer
        self._statistics = statistics
        self._writer = AudioWriter(state.spec.audio, serial=state.spec.params.sampling.seed)
        self._skipped = Skipped(state.resumption or Resumption(), state.spec.audio, state.spec.info.frame_samples)
        self._codes: list[audio_pb2.SegmentCodes] = []  # to be told with the next audio
        self._started = False
        self._reopened = False  # workers that die of an utterance are not to die one after another
        self._frames_before = 0  # the current segment
        self._flush_id = 0
        self._end: StreamEnd | None = None  # of the current segment's stream

    async def run(self, send: Send) -> FinishReason:
        """Everything between `started` and `done`, in its order.

        Raises what ended it otherwise: EngineOverloaded, EngineUnavailable, InvalidSynthesis, StreamFailed.
        """
        while True:
            segment = self._segments.current
            await segment.ready.wait()
            reason = await self._speak(segment, send)
            if reason is not FinishReason.COMPLETED:
                break
            # Of words that were known to be whole only after all their audio had gone out.
            await self._send_marks(0, send)
            assert segment.end is not None, "it is complete"
            if segment.end.last:
                break
            if segment.end.flush_id is not None:
                self._flush_id = segment.end.flush_id
                await send(speak_pb2.FlushDone(flush_id=self._flush_id, audio_ms=self._state.sent_ms))
            self._segments.finish_current()
        if reason is FinishReason.RUNAWAY and self._end is not None:
            await send(synthesis_pb2.Warning(code="RUNAWAY", message=self._end.detail))
        return reason

    async def _speak(self, segment: Segment, send: Send) -> FinishReason:
        known, is_all = self._skipped.of_segment(segment.number) if segment.speakable else (None, False)
        stream = self._begin(segment, known) if segment.speakable and not is_all else None
        await self._start(send)
        self._end = None
        pieces = deque(self._unheard(self._writer.begin() if segment.speakable else [], segment))
        if known is not None:
            segment.codes_bytes = known.size * 2
            pieces += self._unheard(self._skip(len(known)), segment)
        if stream is None:
            await segment.closed.wait()
            self._word_times.end_audio()
            pieces += self._unheard(self._after(segment), segment)
        elif known is not None:
            self._begin_credit(segment)
        while pieces or (stream is not None and self._end is None):
            if stream is not None and self._end is None:
                # All that is there, so that the end is known as early as it can be.
                events = stream.ready_events() or ([] if pieces else [await stream.next_event()])
                if self._is_lost_unheard(events) and (another := self._reopened_stream(segment)):
                    stream = another
                    continue
                for event in events:
                    pieces += self._unheard(self._receive(event, segment), segment)
            if pieces:
                await self._send_audio(self._joined(pieces), segment, send)
        return FinishReason.COMPLETED if self._end is None else _reason(self._end)

    def _begin(self, segment: Segment, known: Int16Array | None = None) -> EngineStream:
        """Its turn has come."""
        if segment.stream is None:
            self._segments.open(segment, self._pacer.ahead_frames(), known)
        assert segment.stream is not None, "it was opened"
        self._begin_credit(segment)
        return segment.stream

    def _begin_credit(self, segment: Segment) -> None:
        """From here on the engine makes it."""
        assert segment.credit is not None, "it was opened"
        self._frames_before = self._state.num_frames
        segment.credit.begin(self._state.sent_samples, self._frames_before)
        self._extend_credit(segment.credit)

    def _skip(self, num_frames: int) -> list[Piece]:
        """In place of frames that the listener has: as much silence, which will be dropped."""
        num_samples = num_frames * self._state.spec.info.frame_samples
        self._state.num_frames += num_frames
        self._state.received_samples += num_samples
        self._word_times.skip_audio(num_samples)
        return self._writer.push(np.zeros(num_samples, np.int16))

    def _unheard(self, pieces: list[Piece], segment: Segment) -> list[Piece]:
        """Without those that the listener has from another session."""
        if not self._skipped.has_more and not self._skipped.has_header:
            return pieces
        unheard: list[Piece] = []
        for piece in pieces:
            if self._skipped.drops(piece):
                self._state.sent_samples += piece.num_samples
            else:
                unheard.append(piece)
        if self._state.spec.timestamps:
            self._word_times.tell(self._state.sent_ms)  # it was told
        if segment.credit is not None:
            self._extend_credit(segment.credit)
        return unheard

    def _is_lost_unheard(self, events: Sequence[PcmChunk | StreamEnd]) -> bool:
        """Its workers died before any of the segment was taken, so that others may speak all of it, once."""
        if self._reopened or self._state.num_frames != self._frames_before or not events:
            return False
        last = events[-1]
        return isinstance(last, StreamEnd) and last.reason is FinishReason.UNAVAILABLE

    def _reopened_stream(self, segment: Segment) -> EngineStream | None:
        """On other workers; None if there are none."""
        self._reopened = True
        segment.detach()
        try:
            return self._begin(segment)
        except (EngineOverloaded, EngineUnavailable):
            return None

    async def _start(self, send: Send) -> None:
        """What comes first, once."""
        if self._started:
            return
        self._started = True
        spec = self._state.spec
        await send(
            synthesis_pb2.UtteranceStarted(
                audio=self._audio.to_proto(),
                voice_id=spec.voice_id,
                seed=spec.params.sampling.seed,
                replay=spec.replay(),
                checkpoint=spec.info.fingerprint,
            )
        )
        for warned in spec.warnings:
            await send(warned.to_proto())

    def _receive(self, event: PcmChunk | StreamEnd, segment: Segment) -> list[Piece]:
        if isinstance(event, PcmChunk):
            if self._state.spec.resumable:
                self._tell_codes(segment, event.codes)
            self._statistics.received(event)
            self._word_times.push_audio(event.samples)
            if not self._statistics.awaits_budget:
                return self._writer.push(event.samples)
            start_s = time.monotonic()
            pieces = self._writer.push(event.samples)
            self._statistics.encoded(event, start_s)
            return pieces
        self._end = event
        self._statistics.ended(event)
        if event.reason != FinishReason.COMPLETED:
            return self._writer.end()
        if self._state.spec.resumable:
            self._tell_codes(segment, None)
        self._word_times.end_audio()
        return self._after(segment)

    def _tell_codes(self, segment: Segment, codes: Int16Array | None) -> None:
        """With the next audio; None: there are no more of this segment."""
        told = audio_pb2.SegmentCodes(segment=segment.number, offset=segment.codes_bytes, complete=codes is None)
        if codes is not None:
            told.codes = codes.astype("<u2").tobytes()
            segment.codes_bytes += len(told.codes)
        self._codes.append(told)

    def _after(self, segment: Segment) -> list[Piece]:
        """What follows the speech of a segment: a pause, and whatever the stages of the audio still hold."""
        assert segment.end is not None, "it is complete"
        if segment.end.last:
            return self._writer.end()
        pieces: list[Piece] = []
        if segment.end.pause_ms and self._state.received_samples:
            rate_hz = self._audio.native_rate_hz * self._audio.speed
            silence = np.zeros(round(segment.end.pause_ms * rate_hz / 1000), np.int16)
            self._word_times.push_audio(silence)
            pieces = self._writer.push(silence)
        elif not segment.speakable:
            return []
        return pieces + self._writer.flush()

    def _joined(self, pieces: deque[Piece]) -> Piece:
        """The next piece, and with it more of those that are there, if that is allowed."""
        first = pieces.popleft()
        if not self._audio.may_join or not first.num_samples:
            return first
        limit = self._pacer.max_chunk_ms * self._audio.sample_rate_hz // 1000
        data, num_samples = [first.data], first.num_samples
        while pieces and pieces[0].num_samples and num_samples + pieces[0].num_samples <= limit:
            piece = pieces.popleft()
            data.append(piece.data)
            num_samples += piece.num_samples
        return Piece(b"".join(data), num_samples) if len(data) > 1 else first

    async def _send_audio(self, piece: Piece, segment: Segment, send: Send) -> None:
        num_samples = piece.num_samples
        await self._pacer.wait(num_samples * 1000 / self._audio.sample_rate_hz)
        await self._send_marks(num_samples, send)
        chunk = audio_pb2.AudioChunk(
            data=piece.data,
            start_ms=self._state.sent_ms,
            num_samples=num_samples,
            flush_id=self._flush_id,
            budget=self._statistics.first_budget() if num_samples else None,
            codes=self._codes,
        )
        self._codes.clear()
        await send(chunk, partial(self._taken, segment, num_samples))

    def _taken(self, segment: Segment, num_samples: int) -> None:
        if num_samples:
            self._statistics.sent(num_samples)
            if segment.credit is not None:  # else it is a pause
                self._extend_credit(segment.credit)

    def _extend_credit(self, credit: Credit) -> None:
        """Let the engine make what may be sent soon."""
        credit.extend(self._state.sent_samples, self._state.num_frames, self._pacer.ahead_frames())

    async def _send_marks(self, num_samples: int, send: Send) -> None:
        """Of the words that begin in the audio that goes out next, if they are wanted."""
        if not self._state.spec.timestamps:
            return
        until_ms = (self._state.sent_samples + num_samples) * 1000 / self._audio.sample_rate_hz
        if words := self._word_times.tell(until_ms):
            await send(synthesis_pb2.Marks(marks=[word.to_proto() for word in words]))


def _reason(end: StreamEnd) -> FinishReason:
    """What the end of a stream means for the utterance."""
    if end.reason in _ENDS_WELL:
        return end.reason
    if end.reason is FinishReason.UNAVAILABLE:
        raise EngineUnavailable(end.detail or "the engine stopped; try again")
    raise StreamFailed(end.detail or f"the engine ended a stream with {end.reason.name}")
