"""Delivers the audio of one utterance: from the engine's streams, through encoding and pacing, to the outbox."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np

from sonorant.engine import (
    EngineOverloaded,
    EngineUnavailable,
    FinishReason,
    Int16Array,
    StreamEnd,
    StreamFailed,
)
from sonorant.service.audio.codes import CodesHeader
from sonorant.service.audio.output import joined, writer_for
from sonorant.service.audio.writer import Piece
from sonorant.service.calls.loop_share import Part
from sonorant.service.pacing.pacer import Pacer
from sonorant.service.text.revision import heard_to
from sonorant.service.utterance.receipts import Place
from sonorant.service.utterance.resumption import KnownSegment, Resumption, Skipped
from sonorant.service.utterance.segment_maker import SegmentMaker
from sonorant.service.utterance.segments import Segment, Segments
from sonorant.service.utterance.state import UtteranceState
from sonorant.service.utterance.statistics import Statistics
from sonorant.service.utterance.word_times import Word, WordTimes
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2

Message: TypeAlias = (
    synthesis_pb2.Queued
    | synthesis_pb2.UtteranceStarted
    | audio_pb2.AudioChunk
    | synthesis_pb2.Marks
    | speak_pb2.FlushDone
    | synthesis_pb2.Warning
)
# How long to wait for the end of a text that is a phrase in the cache so far: most clients send both together.
PHRASE_WAIT_S = 0.005
SILENT_FRAMES = 8  # written at once; encoded as Opus they take some 7 ms
_ENDS_WELL = (FinishReason.COMPLETED, FinishReason.MAX_FRAMES, FinishReason.RUNAWAY)


class Send(Protocol):
    async def __call__(self, message: Message, on_taken: Callable[[], None] | None = None) -> None:
        """Send a message. `on_taken` is called once it cannot be taken back; with it, this returns when gRPC has it."""


class Delivery:
    def __init__(
        self,
        state: UtteranceState,
        segments: Segments,
        word_times: WordTimes,
        pacer: Pacer,
        statistics: Statistics,
        part: Part,
    ) -> None:
        """`part`: see `SegmentMaker`."""
        self._state = state
        self._audio = state.spec.audio
        self._segments = segments
        self._word_times = word_times
        self._pacer = pacer
        self._statistics = statistics
        self._part = part
        params = state.spec.params
        self._writer = writer_for(state.spec.audio, state.spec.info, params.reference_codes, params.sampling.seed)
        self._skipped = Skipped(state.resumption or Resumption(), state.spec.audio, state.spec.info.frame_samples)
        self._codes: list[audio_pb2.SegmentCodes] = []  # to be sent with the next audio
        self._num_frames_before = self._pause_ms = 0  # of all segments before the current one
        self._words_again: list[Word] = []  # words of audio that another session sent, to be sent with the next audio
        self._packing = CodesHeader.of(state.spec.info)
        self._started = False
        self._flush_id = 0
        # Of the current segment:
        self._maker = SegmentMaker(state, segments, word_times, pacer, statistics, part)
        self._pieces: deque[Piece] = deque()  # encoded and not sent; they cannot be taken back
        self._babbled = False  # whether the caller was warned
        self._begun = False  # whether what comes before its audio is encoded
        self._finished = False  # whether its end is encoded, or another session has sent it

    async def run(self, send: Send) -> FinishReason:
        """Send everything from `started` up to, but without, `done`, and return the reason for `done`.

        Raises EngineOverloaded, EngineUnavailable, InvalidSynthesis or StreamFailed.
        """
        try:
            while True:
                segment = self._segments.current
                reason = await self._speak(segment, send)
                if reason is not FinishReason.COMPLETED:
                    break
                # Marks of words that were known to be complete only after all their audio had gone out.
                await self._send_marks(0, send)
                assert segment.end is not None, "it is complete"
                if segment.end.last:
                    break
                if segment.end.flush_id is not None:
                    self._flush_id = segment.end.flush_id
                    await send(speak_pb2.FlushDone(flush_id=self._flush_id, audio_ms=self._state.sent_ms))
                self._num_frames_before += self._maker.frames.num_frames
                self._pause_ms += segment.end.pause_ms
                self._segments.finish_current(self._maker.frames.codes(self._maker.frames.num_frames))
            if reason is FinishReason.RUNAWAY and self._maker.end is not None:
                await send(synthesis_pb2.Warning(code="RUNAWAY", message=self._maker.end.detail))
            return reason
        finally:
            self._maker.give_up_phrase()

    def heard_to(self, text: str) -> int:
        """Return how far the text may have been heard in the audio given out: up to there it cannot be revised."""
        spec, maker, current = self._state.spec, self._maker, self._segments.current
        heard = current.start_char
        if current is maker.segment:
            if self._finished or (maker.stream is None and maker.frames.num_frames):
                heard = self._segments.end_char(current)
            elif maker.frames.num_given:
                heard = heard_to(text, current.start_char, maker.frames.num_given, spec.lexicon.respell)
        if self._skipped.has_more:  # another session sent audio that is still to be skipped
            heard = max(heard, heard_to(text, 0, self._skipped.num_frames, spec.lexicon.respell))
        return heard

    @property
    def is_all_made(self) -> bool:
        """Whether the engine has made all of it, and nothing has to be made again."""
        segment, end = self._segments.current, self._maker.end
        is_last = segment is self._maker.segment and segment.end is not None and segment.end.last
        return is_last and end is not None and end.reason is FinishReason.COMPLETED

    def revise(self, segment: Segment, spoken: Sequence[str | None]) -> int:
        """See `SegmentMaker.revise`."""
        return self._maker.revise(segment, spoken)

    async def _speak(self, segment: Segment, send: Send) -> FinishReason:
        maker = self._maker
        maker.begin(segment)
        self._finished = self._begun = False
        await segment.until_ready()
        if segment.stream is None and segment.speakable and self._segments.may_be_phrase(segment):
            with suppress(TimeoutError):
                async with asyncio.timeout(PHRASE_WAIT_S):
                    await segment.closed.wait()
            await segment.until_ready()  # again, as a revision may have come instead
        known = self._skipped.of_segment(segment.number) if segment.speakable else None
        is_all = known is not None and known.complete
        if segment.speakable and not is_all:
            if segment.stream is None:
                segment.draw = self._skipped.draw_of_segment(segment.number)
            await self._open(segment, send, known)
            await asyncio.sleep(0)  # the engine's commands leave before anything is made for the client
        elif known is not None:
            maker.skip(known)
        await self._start(segment, send)
        self._begin_writing(segment)
        if known is not None:
            await self._write_silence(known.codes)
        while self._pieces or not self._finished:
            if maker.stream is None and not self._finished:
                await self._open_or_finish(segment, send, is_heard=is_all)
            if maker.stream is not None and not self._finished:
                await maker.go_on(wait=not (self._pieces or maker.num_due or maker.end))
                await self._warn_of_babble(send)
                if not self._pieces:
                    await self._encode(segment)
            if self._pieces:
                await self._send_audio(send)
        return FinishReason.COMPLETED if maker.end is None else _reason(maker.end)

    async def _open(self, segment: Segment, send: Send, known: KnownSegment | None = None) -> None:
        """Open the segment's stream. If there is no place, wait as long as the caller allows, or while the listener
        still has something to hear."""
        try:
            await self._maker.open(segment, known)
        except EngineOverloaded:
            asked_s = self._state.spec.scheduling.max_wait_s
            if (wait_s := max(asked_s, self._pacer.lead_s)) <= 0:
                raise
            open_stream = partial(self._maker.open, segment, known)

            async def tell(num_ahead: int, expected_s: float) -> None:
                await send(synthesis_pb2.Queued(num_ahead=num_ahead, expected_wait_ms=round(expected_s * 1000)))

            await self._segments.reservation.open_in_turn(open_stream, wait_s, tell if asked_s else None)

    async def _open_or_finish(self, segment: Segment, send: Send, *, is_heard: bool) -> None:
        """Finish a segment that had nothing to speak, or open its stream if a revision has changed that."""
        await (segment.closed.wait() if is_heard else segment.until_ready())
        if segment.speakable and not is_heard:
            await self._open(segment, send)
            self._begin_writing(segment)
        else:
            self._word_times.end_audio()
            self._finish(segment)

    # Giving audio out

    def _begin_writing(self, segment: Segment) -> None:
        if segment.speakable and not self._begun:
            self._begun = True
            self._encoded(self._writer.begin(segment.manner.gain_db, carries_on=segment.carried is not None))

    async def _write_silence(self, known: Int16Array) -> None:
        """Encode silence in place of frames that the listener has, to be dropped: in pieces, as it may be many minutes.

        Only the last piece is really encoded. No encoder remembers more.
        """
        silence = np.zeros(SILENT_FRAMES * self._state.spec.info.frame_samples, np.int16)
        for begin in range(0, len(known), SILENT_FRAMES):
            codes = known[begin : begin + SILENT_FRAMES]
            num_samples = self._maker.frames.num_samples
            samples = silence[: num_samples(begin + len(codes)) - num_samples(begin)]
            is_last = begin + SILENT_FRAMES >= len(known)
            write = self._writer.speech if is_last else self._writer.skip
            self._encoded(await self._part.do(write, samples, codes))

    async def _encode(self, segment: Segment) -> None:
        """Encode due frames, as far as the listener has room for them; after the last one, the segment's end."""
        maker, frame_ms = self._maker, self._pacer.frame_ms
        most = max(1, int(self._pacer.max_chunk_ms / frame_ms)) if self._audio.may_join else 1
        if num_frames := min(most, maker.num_due):
            await self._pacer.wait(num_frames * frame_ms if self._audio.may_join else self._audio.frame_duration_ms)
            if num_frames := min(num_frames, maker.num_due):  # some may have been taken back meanwhile
                self._give(segment, num_frames)
        if maker.end is not None and not maker.frames.num_waiting:
            if self._state.spec.resumable and maker.end.reason is FinishReason.COMPLETED:
                self._add_codes(segment, complete=True)
            self._finish(segment)

    def _give(self, segment: Segment, num_frames: int) -> None:
        frames = self._maker.frames
        codes, samples = frames.give(num_frames)
        if self._state.spec.resumable and frames.num_codes_taken < frames.num_given:
            self._add_codes(segment)
        if not len(samples):
            return  # silence at the beginning, which is not sent
        start_s = time.monotonic()
        self._encoded(self._writer.speech(samples, codes))
        if self._statistics.awaits_budget:
            self._statistics.encoded(time.monotonic() - start_s)

    def _encoded(self, pieces: list[Piece]) -> None:
        self._pieces += self._unheard(pieces)

    def _finish(self, segment: Segment) -> None:
        """Encode what follows the speech of a segment: a pause, and the audio that the stages still hold."""
        self._finished = True
        end = self._maker.end
        is_cut = end is not None and end.reason is not FinishReason.COMPLETED
        self._encoded(self._writer.end() if is_cut else self._after(segment))

    def _unheard(self, pieces: list[Piece]) -> list[Piece]:
        """Drop the pieces that the listener has from another session, and return the others."""
        if not self._skipped.has_more and not self._skipped.has_header:
            return pieces
        unheard: list[Piece] = []
        for piece in pieces:
            if self._skipped.drops(piece):
                self._state.sent_samples += piece.num_samples
            else:
                unheard.append(piece)
        if self._state.spec.timestamps:
            # The other session has sent most of these marks. Which ones is unknown, so clients skip those they have.
            self._words_again += self._word_times.take_due(self._state.sent_ms)
        self._maker.extend_credit()
        return unheard

    async def _start(self, segment: Segment, send: Send) -> None:
        """Send `started` and the warnings, only once."""
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
                from_phrase_cache=segment.is_kept,
                codebooks=self._packing.num_codebooks if spec.packs_codes else 0,
                code_bits=self._packing.bits if spec.packs_codes else 0,
            )
        )
        for warned in spec.warnings:
            await send(warned.to_proto())

    async def _warn_of_babble(self, send: Send) -> None:
        if not self._babbled and self._maker.babbles:
            self._babbled = True
            where = round(self._state.received_ms / 1000)
            message = (
                f"after {where} s the model stands still in its text and speaks on, longer than it takes; this is "
                "probably not the text: cancel, and speak the rest again with another seed"
            )
            await send(synthesis_pb2.Warning(code="BABBLE", message=message))

    def _add_codes(self, segment: Segment, *, complete: bool = False) -> None:
        """Add the codes of all due frames to the next audio. Many frames at once cost little each.

        `complete`: the segment has no more codes.
        """
        frames = self._maker.frames
        num_before, codes = frames.take_codes(frames.num_given + self._maker.num_due)
        offset = 2 * num_before * self._packing.num_codebooks  # in bytes of codes that are not packed
        record = audio_pb2.SegmentCodes(
            segment=segment.number,
            offset=offset,
            complete=complete,
            draw=segment.draw,
            unsent_samples=frames.unsent_samples,
        )
        if self._state.spec.packs_codes:
            record.packed = self._packing.pack(codes)
        else:
            record.codes = codes.astype("<u2").tobytes()
        self._codes.append(record)

    def _after(self, segment: Segment) -> list[Piece]:
        """Return what follows the speech of a segment: a pause, and the audio that the stages still hold."""
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

    async def _send_audio(self, send: Send) -> None:
        data, num_samples = joined(self._pieces, self._audio, self._pacer.max_chunk_ms)
        await self._pacer.wait(num_samples * 1000 / self._audio.sample_rate_hz)
        await self._send_marks(num_samples, send)
        chunk = audio_pb2.AudioChunk(
            data=data,
            start_ms=self._state.sent_ms,
            num_samples=num_samples,
            flush_id=self._flush_id,
            budget=self._statistics.first_budget() if num_samples else None,
            codes=self._codes,
            receipt=self._receipt(num_samples) if self._codes else None,
        )
        self._codes.clear()
        await send(chunk, partial(self._taken, num_samples))

    def _receipt(self, num_samples: int) -> audio_pb2.Receipt | None:
        """Return the receipt for what is heard once these samples are."""
        receipts, segment, frames = self._state.spec.receipts, self._segments.current, self._maker.frames
        if receipts is None:
            return None
        num_samples += self._state.sent_samples
        heard_chars = self._word_times.position(num_samples * 1000 / self._audio.sample_rate_hz)
        text = "".join(self._state.written)[:heard_chars]
        start_char = self._word_times.written_end(segment.start_char)
        place = Place(segment.number, start_char, frames.num_given, self._num_frames_before, self._pause_ms)
        return receipts.issue(text, num_samples, self._audio, place, frames.codes(frames.num_given))

    def _taken(self, num_samples: int) -> None:
        if num_samples:
            self._statistics.sent(num_samples)
            self._maker.extend_credit()

    async def _send_marks(self, num_samples: int, send: Send) -> None:
        """Send the marks of words that begin in the audio that goes out next, if the client wants marks."""
        if not self._state.spec.timestamps:
            return
        until_ms = (self._state.sent_samples + num_samples) * 1000 / self._audio.sample_rate_hz
        if words := self._words_again + self._word_times.take_due(until_ms):
            self._words_again = []
            await send(synthesis_pb2.Marks(marks=[word.to_proto() for word in words]))


def _reason(end: StreamEnd) -> FinishReason:
    """Return what the end of a stream means for the utterance. Raises EngineUnavailable or StreamFailed."""
    if end.reason in _ENDS_WELL:
        return end.reason
    if end.reason is FinishReason.UNAVAILABLE:
        raise EngineUnavailable(end.detail or "the engine stopped; try again")
    raise StreamFailed(end.detail or f"the engine ended a stream with {end.reason.name}")
