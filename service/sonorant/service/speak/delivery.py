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
from sonorant.service.audio.output import joined, writer_for
from sonorant.service.audio.writer import Piece
from sonorant.service.speak.credit import Credit
from sonorant.service.speak.made import Made
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
MAX_HEALS = 2  # of an utterance
MIN_FRAMES_AGAIN = 8  # fewer are not worth another try
_SPEAKS_NO_MORE = (FinishReason.RUNAWAY, FinishReason.NO_SCORES)
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
        *,
        whole: bool = False,
    ) -> None:
        """`whole`: nobody hears a part of it, so each segment is waited for."""
        self._state = state
        self._audio = state.spec.audio
        self._segments = segments
        self._word_times = word_times
        self._pacer = pacer
        self._statistics = statistics
        self._whole = whole
        params = state.spec.params
        self._writer = writer_for(state.spec.audio, state.spec.info, params.reference_codes, params.sampling.seed)
        self._skipped = Skipped(state.resumption or Resumption(), state.spec.audio, state.spec.info.frame_samples)
        self._codes: list[audio_pb2.SegmentCodes] = []  # to be told with the next audio
        self._started = False
        self._reopened = False  # workers that die of an utterance are not to die one after another
        self._flush_id = 0
        self._num_heals = 0
        # Of the current segment:
        self._made = self._nothing_made()
        self._frames_before = 0  # that were made when its stream was opened
        self._pieces: deque[Piece] = deque()  # encoded, so that they will be sent
        self._end: StreamEnd | None = None  # of its stream
        self._finished = False  # its end is encoded, too

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
        if segment.stream is None:
            segment.draw = self._skipped.draw_of_segment(segment.number)
        stream = self._begin(segment, known) if segment.speakable and not is_all else None
        await self._start(send)
        self._made, self._end, self._finished = self._nothing_made(), None, False
        self._encoded(self._writer.begin() if segment.speakable else [], segment)
        if known is not None:
            segment.codes_bytes = known.size * 2
            self._made.known(known)
            self._encoded(self._skip(known), segment)
        if stream is None:
            await segment.closed.wait()
            self._word_times.end_audio()
            self._finish(segment)
        elif known is not None:
            self._begin_credit(segment)
        while self._pieces or not self._finished:
            if stream is not None and self._end is None:
                # All that is there, so that the end is known as early as it can be.
                is_due = self._pieces or self._num_due
                events = stream.ready_events() or ([] if is_due else [await stream.next_event()])
                if self._is_lost_unheard(events) and (another := self._reopened_stream(segment)):
                    stream = another
                    continue
                for event in events:
                    self._receive(event, segment)
                stream = await self._healed(stream, segment)
            if not self._pieces:
                await self._encode(segment)
            if self._pieces:
                await self._send_audio(joined(self._pieces, self._audio, self._pacer.max_chunk_ms), segment, send)
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

    def _nothing_made(self) -> Made:
        info = self._state.spec.info
        return Made(info.frame_samples, info.num_codebooks)

    # What is given out

    @property
    def _num_due(self) -> int:
        """Frames that may be encoded: all that wait, but for those that may have to be made again."""
        num_waiting = self._made.num_waiting
        if self._end is not None or not self._may_heal:
            return num_waiting
        return 0 if self._whole else num_waiting - self._made.num_suspect

    async def _encode(self, segment: Segment) -> None:
        """What is due, as far as the listener has room for it; behind the last of it, what ends the segment."""
        frame_ms = self._pacer.frame_ms
        most = max(1, int(self._pacer.max_chunk_ms / frame_ms)) if self._audio.may_join else 1
        if num_frames := min(most, self._num_due):
            await self._pacer.wait(num_frames * frame_ms if self._audio.may_join else self._audio.frame_duration_ms)
            codes, samples = self._made.give(num_frames)
            if self._state.spec.resumable:
                self._tell_codes(segment, codes)
            start_s = time.monotonic()
            self._encoded(self._writer.speech(samples, codes), segment)
            if self._statistics.awaits_budget:
                self._statistics.encoded(start_s)
        if self._end is not None and not self._made.num_waiting:
            if self._state.spec.resumable and self._end.reason is FinishReason.COMPLETED:
                self._tell_codes(segment, None)
            self._finish(segment)

    def _encoded(self, pieces: list[Piece], segment: Segment) -> None:
        self._pieces += self._unheard(pieces, segment)

    def _finish(self, segment: Segment) -> None:
        """What follows the speech of a segment: a pause, and whatever the stages of the audio still hold."""
        self._finished = True
        is_cut = self._end is not None and self._end.reason is not FinishReason.COMPLETED
        self._encoded(self._writer.end() if is_cut else self._after(segment), segment)

    def _skip(self, codes: Int16Array) -> list[Piece]:
        """In place of frames that the listener has: as much silence, which will be dropped."""
        num_samples = len(codes) * self._state.spec.info.frame_samples
        self._state.num_frames += len(codes)
        self._state.received_samples += num_samples
        self._word_times.skip_audio(num_samples)
        return self._writer.speech(np.zeros(num_samples, np.int16), codes)

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

    # What is made again

    @property
    def _may_heal(self) -> bool:
        return self._num_heals < MAX_HEALS and not self._state.spec.params.sampling.ignore_eos

    async def _healed(self, stream: EngineStream, segment: Segment) -> EngineStream:
        """The stream, or another in its place if it no longer speaks and nobody has heard that."""
        num_good = self._made.num_good
        is_lost = self._end is not None and self._end.reason in _SPEAKS_NO_MORE
        if not self._may_heal or not (is_lost or (self._end is None and num_good < self._made.num_frames)):
            return stream
        if is_lost and num_good == self._made.num_frames:  # how it was found out says nothing of what is good
            num_good = 0
        if self._made.num_frames - max(num_good, self._made.num_given) < MIN_FRAMES_AGAIN:
            return stream
        self._num_heals += 1
        self._statistics.num_heals += 1
        return await self._again(stream, segment, num_good, draw=self._num_heals)

    async def _again(self, stream: EngineStream, segment: Segment, num_frames: int, draw: int) -> EngineStream:
        """Another stream in its place, which goes on behind the first so many frames, or all that were given out.

        Raises EngineOverloaded or EngineUnavailable.
        """
        await self._over(stream)
        dropped = self._made.num_frames
        dropped -= self._made.take_back(num_frames)
        num_samples = dropped * self._state.spec.info.frame_samples
        self._statistics.taken_back(dropped, num_samples)
        self._word_times.take_back_audio(num_samples)
        self._end = None
        segment.detach()
        segment.draw = draw
        num_known = self._made.num_frames
        known = self._made.codes(num_known) if num_known else None
        self._segments.open(segment, self._pacer.ahead_frames(), known, num_known)
        return self._begin(segment)

    async def _over(self, stream: EngineStream) -> None:
        """It has stopped, so that its place is free."""
        if self._end is not None:
            return
        stream.cancel()
        while not isinstance(event := await stream.next_event(), StreamEnd):
            pass
        self._statistics.ended(event)

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

    def _receive(self, event: PcmChunk | StreamEnd, segment: Segment) -> None:
        if isinstance(event, PcmChunk):
            self._made.push(event)
            self._statistics.received(event)
            self._word_times.push_audio(event.samples)
            if segment.credit is not None and self._made.num_waiting > self._num_due:  # what is held needs company
                self._extend_credit(segment.credit)
            return
        self._end = event
        self._statistics.ended(event)
        if event.reason is FinishReason.COMPLETED:
            self._word_times.end_audio()

    def _tell_codes(self, segment: Segment, codes: Int16Array | None) -> None:
        """With the next audio; None: there are no more of this segment."""
        told = audio_pb2.SegmentCodes(
            segment=segment.number, offset=segment.codes_bytes, complete=codes is None, draw=segment.draw
        )
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
            self._word_times.push_audio(self._audio.pause(segment.end.pause_ms))
            pieces = self._writer.pause(segment.end.pause_ms)
        elif not segment.speakable:
            return []
        return pieces + self._writer.flush()

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
        num_held = self._made.num_waiting - self._num_due
        credit.extend(self._state.sent_samples, self._state.num_frames, self._pacer.ahead_frames() + num_held)

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
