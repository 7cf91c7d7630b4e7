"""Delivers the audio of one utterance: from the engine's streams, through encoding and pacing, to the outbox."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Protocol, TypeAlias

import numpy as np

from sonorant.engine import EngineOverloaded, EngineUnavailable, FinishReason, Int16Array
from sonorant.service.audio.codes import CodesHeader
from sonorant.service.audio.output import Writer, writer_for
from sonorant.service.audio.writer import Piece, joined
from sonorant.service.calls.loop_share import LoopAccess
from sonorant.service.pacing.pacer import Pacer
from sonorant.service.utterance.receipts import Place
from sonorant.service.utterance.requests import Warned
from sonorant.service.utterance.segments import Segment
from sonorant.service.utterance.speech import Speech, State
from sonorant.service.utterance.word_times import TimedWord
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


class Send(Protocol):
    async def __call__(self, message: Message, on_taken: Callable[[], None] | None = None) -> None:
        """Send a message. `on_taken` is called once it cannot be taken back; with it, this returns when gRPC has it."""


class Delivery:
    """Does what `Speech` says: opens and stops streams, and encodes, paces and sends what they make."""

    def __init__(self, speech: Speech, pacer: Pacer, part: LoopAccess) -> None:
        """`part`: the caller's share of the event loop, in which streams are opened."""
        spec = speech.spec
        self._speech = speech
        self._spec = spec
        self._audio = spec.audio  # its format
        self._segments = speech.segments
        self._word_times = speech.word_times
        self._statistics = speech.statistics
        self._pacer = pacer
        self._part = part
        self._codes: list[audio_pb2.SegmentCodes] = []  # to be sent with the next audio
        self._words_again: list[TimedWord] = []  # of audio that another session sent; to be sent with the next audio
        self._packing = CodesHeader.of(spec.info) if spec.packs_codes else None
        self._started = False
        self.warnings: list[synthesis_pb2.Warning] = []  # that were sent
        self._flush_id = 0  # of the last flush that is over
        # Of the current segment:
        self._pieces: deque[Piece] = deque()  # encoded and not sent; they cannot be taken back
        self._begun = False  # whether what comes before its audio is encoded

    @cached_property
    def _writer(self) -> Writer:
        """Made once there is something to write, so as not to delay the first stream."""
        spec = self._spec
        return writer_for(spec.audio, spec.info, spec.params.reference_codes, spec.params.sampling.seed)

    async def speak(self, segment: Segment, send: Send) -> FinishReason:
        """Send all of a segment once its turn has come; before the first one, `started`. Return how it has ended.

        Raises EngineOverloaded, EngineUnavailable, InvalidSynthesis or StreamFailed.
        """
        speech = self._speech
        await segment.until_ready()
        if segment.stream is None and segment.speakable and self._segments.may_be_phrase(segment):
            with suppress(TimeoutError):
                async with asyncio.timeout(PHRASE_WAIT_S):
                    await segment.closed.wait()
            await segment.until_ready()  # again, as a revision may have come instead
        speech.begin(segment)
        self._begun = False
        if speech.needs_stream:
            await self._open(send)
            await asyncio.sleep(0)  # the engine's commands leave before anything is made for the client
        await self._start(send)
        self._begin_writing()
        if speech.known is not None:
            await self._write_silence(speech.known.codes)
        while self._pieces or speech.state is not State.GIVEN:
            await self._make(send)
            if not self._pieces:
                await self._encode()
            if self._pieces:
                await self._send_audio(send)
        if (reason := speech.reason) is FinishReason.COMPLETED:
            await self._complete(segment, send)
        elif reason is FinishReason.RUNAWAY and speech.end is not None:
            await self.warn(send, Warned("RUNAWAY", speech.end.detail))
        return reason

    async def _complete(self, segment: Segment, send: Send) -> None:
        """Send what follows the audio of a segment."""
        if self._spec.timestamps:  # words that were known to be complete only after all their audio had gone out
            await self._send_marks(0, send)
        assert segment.end is not None, "it is complete"
        if segment.end.flush_id is not None:
            self._flush_id = segment.end.flush_id
            await send(speak_pb2.FlushDone(flush_id=self._flush_id, audio_ms=self._statistics.sent_ms))

    def revise(self, segment: Segment, spoken: Sequence[str | None]) -> int:
        """Take back the frames that depend on the old text, and return how many these are. `spoken`: the new text."""
        num_dropped = self._speech.revise(segment, spoken)
        if segment.stream is not None:
            segment.stream.cancel()
            segment.detach()
        self._pacer.changed()
        return num_dropped

    async def _make(self, send: Send) -> None:
        """Let the segment be made. Wait if there is nothing to give out; a revision may come in every wait."""
        speech, segment = self._speech, self._speech.segment
        while True:
            match speech.state:
                case State.WAITING if speech.needs_stream:
                    await self._open(send)
                    self._begin_writing()
                case State.WAITING if not self._pieces:
                    await (segment.closed.wait() if speech.is_heard else segment.until_ready())
                    speech.text_came()
                case State.SET_BACK | State.ENDING:
                    assert speech.stream is not None, "it was opened"
                    speech.stream.cancel()
                    speech.take([await speech.stream.next_event()])
                case State.SPEAKING:
                    stream = speech.stream
                    assert stream is not None, "it was opened"
                    events = stream.ready_events()  # all that has come, so that its end is known early
                    if not (events or self._pieces or speech.num_due):
                        events = [await stream.next_event()]
                    if events and speech.take(events):
                        self._extend_credit()
                    if not speech.frames.signs.is_clear and speech.babbles():
                        await self._warn_of_babble(send)
                    if speech.state is State.SPEAKING:
                        return
                case _:
                    return

    async def _open(self, send: Send) -> None:
        """Open the segment's stream. If there is no place, wait as long as the caller allows, or while the listener
        still has something to hear."""
        try:
            await self._try_to_open()
        except (EngineOverloaded, EngineUnavailable) as error:
            if self._speech.not_opened():
                return
            asked_s = self._spec.scheduling.max_wait_s
            if isinstance(error, EngineUnavailable) or (wait_s := max(asked_s, self._pacer.lead_s)) <= 0:
                raise

            async def tell(num_ahead: int, expected_s: float) -> None:
                await send(synthesis_pb2.Queued(num_ahead=num_ahead, expected_wait_ms=round(expected_s * 1000)))

            reservation = self._segments.reservation
            await reservation.open_in_turn(self._try_to_open, wait_s, tell if asked_s else None)

    async def _try_to_open(self) -> None:
        """Raises EngineOverloaded or EngineUnavailable."""
        if self._speech.segment.stream is None or self._speech.stream is not None:
            await self._part.do(self._open_now)
        else:
            self._open_now()

    def _open_now(self) -> None:
        """All at once, as a revision may come before and after, but not between. It may leave nothing to speak."""
        speech, segment, frames = self._speech, self._speech.segment, self._speech.frames
        if not speech.needs_stream:
            return
        if segment.stream is not None and segment.stream is speech.stream:  # the one that was set back
            segment.detach()
        if segment.stream is None:
            known = frames.codes(frames.num_frames) if frames.num_frames else None
            told = () if speech.known is None else self._word_times.told_words()
            self._segments.open(segment, self._pacer.ahead_frames(), known, told)
        speech.opened()
        self._extend_credit(begins=True)

    def _extend_credit(self, *, begins: bool = False) -> None:
        """Let the engine make what may be sent soon. `begins`: the turn of the stream's segment has come."""
        speech, statistics, credit = self._speech, self._statistics, self._speech.segment.credit
        if credit is None:  # there is only a pause
            return
        per_sample = self._audio.sample_rate_hz / (self._audio.native_rate_hz * speech.segment.sound.speed)
        taken_samples = statistics.sent_samples + round(speech.frames.unsent_samples * per_sample)  # or left out
        if begins:
            credit.begin(taken_samples, statistics.num_frames)
        ahead_frames = self._pacer.ahead_frames() + speech.frames.num_waiting - speech.num_due
        credit.extend(taken_samples, statistics.num_frames, ahead_frames)

    # Giving audio out

    def _begin_writing(self) -> None:
        segment = self._speech.segment
        if segment.speakable and not self._begun:
            self._begun = True
            self._encoded(self._writer.begin(segment.sound, carries_on=segment.carried is not None))

    async def _write_silence(self, known: Int16Array) -> None:
        """Encode silence in place of frames that the listener has, to be dropped: in pieces, as it may be many minutes.

        Only the last piece is really encoded. No encoder remembers more.
        """
        silence = np.zeros(SILENT_FRAMES * self._spec.info.frame_samples, np.int16)
        for begin in range(0, len(known), SILENT_FRAMES):
            codes = known[begin : begin + SILENT_FRAMES]
            num_samples = self._speech.frames.num_samples
            samples = silence[: num_samples(begin + len(codes)) - num_samples(begin)]
            is_last = begin + SILENT_FRAMES >= len(known)
            write = self._writer.speech if is_last else self._writer.skip
            self._encoded(await self._part.do(write, samples, codes))

    async def _encode(self) -> None:
        """Encode due frames, as far as the listener has room for them; after the last one, the segment's end."""
        speech, frame_ms = self._speech, 1000 / (self._spec.info.frame_rate_hz * self._speech.segment.sound.speed)
        most = max(1, int(self._pacer.max_chunk_ms / frame_ms)) if self._audio.may_join else 1
        if num_frames := min(most, speech.num_due):
            await self._pacer.wait(num_frames * frame_ms if self._audio.may_join else self._audio.frame_duration_ms)
            if num_frames := min(num_frames, speech.num_due):  # a revision may have taken some back meanwhile
                codes, samples = speech.frames.give(num_frames)
                if self._spec.resumable and speech.frames.num_codes_taken < speech.frames.num_given:
                    self._add_codes()
                if len(samples):  # else it is silence at the beginning, which is not sent
                    start_s = time.monotonic()
                    self._encoded(self._writer.speech(samples, codes))
                    if self._statistics.budget is None:
                        self._statistics.encoded(time.monotonic() - start_s)
        if speech.state is State.OVER and not speech.frames.num_waiting:
            self._encode_end()

    def _encode_end(self) -> None:
        """Encode what follows the segment's last frame."""
        speech = self._speech
        is_whole = speech.end is not None and speech.end.reason is FinishReason.COMPLETED
        # A segment without a word has no codes, but a client that resumes the utterance sends a record of each segment.
        if self._spec.resumable and (is_whole or not speech.segment.speakable):
            self._add_codes(complete=True)
        speech.gave_all()
        self._encoded(self._after() if is_whole or speech.end is None else self._writer.end())

    def _encoded(self, pieces: list[Piece]) -> None:
        """Keep what is to be sent. Drop the pieces that the listener has from another session."""
        skipped = self._speech.skipped
        if skipped is None or skipped.is_over:
            self._pieces += pieces
            return
        for piece in pieces:
            if skipped.drops(piece):
                self._statistics.sent_samples += piece.num_samples
            else:
                self._pieces.append(piece)
        if self._spec.timestamps:
            # The other session has sent most of these marks. Which ones is unknown, so clients skip those they have.
            self._words_again += self._word_times.take_due(self._statistics.sent_ms)
        self._extend_credit()

    async def _start(self, send: Send) -> None:
        """Send `started` and the warnings, only once."""
        if self._started:
            return
        self._started = True
        spec = self._spec
        await send(
            synthesis_pb2.UtteranceStarted(
                audio=self._audio.to_proto(),
                voice_id=spec.voice_id,
                seed=spec.params.sampling.seed,
                replay=spec.replay(),
                checkpoint=spec.info.fingerprint,
                from_phrase_cache=self._speech.segment.is_kept,
                codebooks=0 if self._packing is None else self._packing.num_codebooks,
                code_bits=0 if self._packing is None else self._packing.bits,
            )
        )
        await self.warn(send, *spec.warnings)

    async def warn(self, send: Send, *warned: Warned) -> None:
        for each in warned:
            self.warnings.append(each.to_proto())
            await send(self.warnings[-1])

    async def _warn_of_babble(self, send: Send) -> None:
        if all(warning.code != "BABBLE" for warning in self.warnings):
            where = round(self._statistics.received_ms / 1000)
            message = (
                f"after {where} s the model stands still in its text and speaks on, longer than it takes; this is "
                "probably not the text: cancel, and speak the rest again with another seed"
            )
            await self.warn(send, Warned("BABBLE", message))

    def _add_codes(self, *, complete: bool = False) -> None:
        """Add the codes of all due frames to the next audio. Many frames at once cost little each.

        `complete`: the segment has no more codes.
        """
        segment, frames = self._speech.segment, self._speech.frames
        num_before, codes = frames.take_codes(frames.num_given + self._speech.num_due)
        offset = 2 * num_before * codes.shape[1]  # in bytes of codes that are not packed
        record = audio_pb2.SegmentCodes(
            segment=segment.number,
            offset=offset,
            complete=complete,
            draw=segment.draw,
            unsent_samples=frames.unsent_samples,
        )
        if self._packing is not None:
            record.packed = self._packing.pack(codes)
        else:
            record.codes = codes.astype("<u2").tobytes()
        self._codes.append(record)

    def _after(self) -> list[Piece]:
        """Return what follows the speech of a segment: a pause, and the audio that the stages still hold."""
        segment = self._speech.segment
        assert segment.end is not None, "it is complete"
        if segment.end.last:
            return self._writer.end()
        pieces: list[Piece] = []
        if segment.end.pause_ms and self._statistics.received_samples:
            self._word_times.push_audio(self._speech.segment.sound.pause(segment.end.pause_ms))
            pieces = self._writer.pause(segment.end.pause_ms)
        elif not segment.speakable:
            return []
        return pieces + self._writer.flush()

    async def _send_audio(self, send: Send) -> None:
        data, num_samples = joined(self._pieces, self._audio, self._pacer.max_chunk_ms)
        await self._pacer.wait(num_samples * 1000 / self._audio.sample_rate_hz)
        if self._spec.timestamps:
            await self._send_marks(num_samples, send)
        chunk = audio_pb2.AudioChunk(
            data=data,
            start_ms=self._statistics.sent_ms,
            num_samples=num_samples,
            flush_id=self._flush_id,
            budget=self._statistics.first_budget() if num_samples and self._statistics.budget is None else None,
            codes=self._codes,
            receipt=self._receipt(num_samples) if self._codes else None,
        )
        self._codes.clear()
        await send(chunk, partial(self._taken, num_samples))

    def _receipt(self, num_samples: int) -> audio_pb2.Receipt | None:
        """Return the receipt for what is heard once these samples are."""
        receipts, segments, frames = self._spec.receipts, self._segments, self._speech.frames
        if receipts is None:
            return None
        num_samples += self._statistics.sent_samples
        heard_chars = self._word_times.position(num_samples * 1000 / self._audio.sample_rate_hz)
        text = "".join(segments.written)[:heard_chars]
        start_char = self._word_times.segmenter.reading.written_end(segments.current.start_char)
        before = segments.num_frames_before, segments.pause_ms_before
        place = Place(segments.current.number, start_char, frames.num_given, *before)
        return receipts.issue(text, num_samples, self._audio, place, frames.codes(frames.num_given))

    def _taken(self, num_samples: int) -> None:
        if num_samples:
            self._statistics.sent(num_samples)
            self._extend_credit()

    async def _send_marks(self, num_samples: int, send: Send) -> None:
        """Send the marks of words that begin in the audio that goes out next."""
        until_ms = (self._statistics.sent_samples + num_samples) * 1000 / self._audio.sample_rate_hz
        if words := self._words_again + self._word_times.take_due(until_ms):
            self._words_again = []
            await send(synthesis_pb2.Marks(marks=[word.to_proto() for word in words]))
