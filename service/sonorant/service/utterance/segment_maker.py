"""Makes the current segment: its stream, the frames that came, and what is made again. Sends nothing.

A stream that goes wrong, or whose text is revised, is set back: another stream continues after the frames that stay. A
stream that has said its text and does not stop is ended. Frames that were given out always stay.
"""

from collections.abc import Sequence
from functools import partial

from sonorant.engine import (
    EngineOverloaded,
    EngineStream,
    EngineUnavailable,
    FinishReason,
    PcmChunk,
    StreamEnd,
)
from sonorant.service.calls.loop_share import Part
from sonorant.service.pacing.pacer import Pacer
from sonorant.service.utterance.phrases import PhraseStream
from sonorant.service.utterance.resumption import KnownSegment
from sonorant.service.utterance.segment_frames import SegmentFrames
from sonorant.service.utterance.segments import Segment, Segments
from sonorant.service.utterance.signs import BABBLE_LONGER
from sonorant.service.utterance.state import UtteranceState
from sonorant.service.utterance.statistics import Statistics
from sonorant.service.utterance.word_times import ReachedMs, WordTimes
from sonorant.tts.v1 import audio_pb2

MAX_HEALS = 2  # per utterance
MIN_FRAMES_AGAIN = 8  # fewer bad frames are not worth another try
_CAN_BE_OVER = (FinishReason.COMPLETED, FinishReason.MAX_FRAMES, FinishReason.RUNAWAY, FinishReason.NO_SCORES)
_SPEAKS_NO_MORE = (FinishReason.RUNAWAY, FinishReason.NO_SCORES)


class SegmentMaker:
    def __init__(
        self,
        state: UtteranceState,
        segments: Segments,
        word_times: WordTimes,
        pacer: Pacer,
        statistics: Statistics,
        part: Part,
    ) -> None:
        """`part`: the caller's share of the event loop, in which streams are opened."""
        self._state = state
        self._info = state.spec.info
        self._segments = segments
        self._word_times = word_times
        self._pacer = pacer
        self._statistics = statistics
        self._part = part
        self._num_heals = 0
        self._reopened = False  # only once, so that an utterance that kills workers cannot kill one after another
        self._frames_before = 0  # the utterance's frames when the stream was opened
        self._stream_over = False  # whether the stream's end has come
        self._spoken = segments.phrases.gather()  # collects the stream's frames for the phrase cache
        self.segment: Segment | None = None
        self.stream: EngineStream | PhraseStream | None = None
        self.frames: SegmentFrames  # of the segment
        self.end: StreamEnd | None = None  # the end of the segment's speech

    def begin(self, segment: Segment) -> None:
        """Begin a segment whose turn has come. `open` gives it a stream."""
        if segment is not self.segment:
            self.segment, self.stream, self.end = segment, None, None
            # Stored codes are kept whole. Speech that carries on does not begin, so its silence is a speaker's pause.
            is_stored = self._state.spec.audio.encoding == audio_pb2.AUDIO_ENCODING_CODES
            begins = not is_stored and segment.carried is None
            silent_first_frames = self._info.silent_first_frames if begins else 0
            self.frames = SegmentFrames(self._info.frame_samples, self._info.num_codebooks, silent_first_frames)

    async def open(self, segment: Segment, known: KnownSegment | None = None) -> None:
        """Open the segment's stream if it has none, and follow it. `known`: frames that another session sent.

        Does nothing if a revision leaves nothing to speak meanwhile. Raises EngineOverloaded or EngineUnavailable.
        """
        if segment.stream is None:
            await self._part.do(self._open, segment, known)
        else:
            self._open(segment, known)

    def skip(self, known: KnownSegment) -> None:
        """Count frames that another session sent."""
        codes = known.codes
        self.frames.known(codes, known.unsent_samples)
        num_samples = self.frames.num_samples(len(codes))
        self._state.num_frames += len(codes)
        self._state.received_samples += num_samples
        self._word_times.skip_audio(num_samples)
        if self.segment is not None and self.segment.credit is not None:
            self._begin_credit(self.segment)

    @property
    def num_due(self) -> int:
        """How many frames may be given out: all that wait, except those that may have to be made again."""
        num_waiting = self.frames.num_waiting
        if self.segment is not None and self.segment.revised:
            return num_waiting
        if self.end is not None or not self._is_watched:
            return num_waiting
        if self._pacer.whole:
            return 0  # each segment is made to its end first
        return num_waiting - (self.frames.num_suspect if self._may_heal else self.frames.num_over)

    @property
    def babbles(self) -> bool:
        """Whether the segment stands still in its text while sound goes on, far longer than the text takes."""
        if self.end is not None or not self._is_watched or not self.frames.stands_still:
            return False
        made_ms = self.frames.num_frames * 1000 / self._info.frame_rate_hz
        return made_ms >= BABBLE_LONGER * self._word_times.usual_ms

    async def go_on(self, *, wait: bool) -> None:
        """Take all that has come from the stream, so that its end is known early. `wait`: until something has come.

        Raises EngineOverloaded or EngineUnavailable if the stream has to be set back and cannot be.
        """
        segment, stream = self.segment, self.stream
        assert segment is not None and stream is not None, "it was opened"
        if not segment.revised and self.end is None:
            events = stream.ready_events() or ([await stream.next_event()] if wait else [])
            self._stream_over = bool(events) and isinstance(events[-1], StreamEnd)
            if not segment.revised and self._is_lost_unheard(events) and await self._reopen(segment):
                return
            if not segment.revised:
                for event in events:
                    self._receive(event, segment)
        if segment.revised:
            await self._speak_revised(segment)
        elif self._missed_end:
            await self._stop(stream)
            if not segment.revised:
                self._end_where_it_was_over()
        elif self._says_nothing(segment):
            self._count_heal()
            segment.carried = None
            self.take_back(0)
            await self._part.do(self._set_back, segment)
        elif (num_good := self._num_good()) is not None:
            self._count_heal()
            segment.draw = self._num_heals
            await self._stop(stream)
            self.take_back(num_good)
            await self._part.do(self._set_back, segment)

    def extend_credit(self) -> None:
        """Let the engine make what may be sent soon."""
        if self.segment is not None and self.segment.credit is not None:  # without a stream there is only a pause
            ahead = self._pacer.ahead_frames() + self.frames.num_waiting - self.num_due
            self.segment.credit.extend(self._taken_samples, self._state.num_frames, ahead)

    def take_back(self, num_frames: int) -> None:
        """Keep `num_frames` of the segment, or more if more were given out. Afterwards its stream must be set back."""
        dropped, num_samples = self.frames.num_frames, self.frames.num_samples(self.frames.num_frames)
        num_kept = self.frames.take_back(num_frames)
        dropped -= num_kept
        num_samples -= self.frames.num_samples(num_kept)
        self._statistics.taken_back(dropped, num_samples)
        was_ended = self.end is not None and self.end.reason is FinishReason.COMPLETED
        self._word_times.take_back_audio(num_samples, was_ended=was_ended)
        self.end = None

    def revise(self, segment: Segment, spoken: Sequence[str | None]) -> int:
        """Take back the frames that depend on the old text, and return how many these are. `spoken`: the new text."""
        if segment is not self.segment or self.stream is None:
            if segment.stream is not None:
                segment.stream.cancel()
                segment.detach()
            return 0
        before = self.frames.num_frames
        if segment.stream is not None:
            self.take_back(segment.frames_in_common(spoken))
            segment.stream.cancel()
            segment.detach()
        else:  # an earlier revision has not been set back yet
            self.take_back(0)
        segment.revised = True
        self._pacer.changed()
        return before - self.frames.num_frames

    def give_up_phrase(self) -> None:
        """Drop what was collected for the phrase cache, as the utterance is over."""
        self._spoken.give_up()

    # The stream

    def _open(self, segment: Segment, known: KnownSegment | None) -> None:
        """All at once, as a revision may come before and after, but not between."""
        if segment.stream is None and (segment.speakable or known is not None):
            codes = None if known is None else known.codes
            self._segments.open(segment, self._pacer.ahead_frames(), codes)
        if segment.stream is not None:
            self._take_up(segment)
            if known is not None:
                self.skip(known)

    def _take_up(self, segment: Segment) -> None:
        self.stream, self._stream_over = segment.stream, False
        self._spoken.give_up()
        self._spoken = self._segments.phrases.gather()
        if self._state.spec.times_words:  # phrases in the cache have no times
            times = self.stream.text_times if isinstance(self.stream, EngineStream) else None
            if times is None:
                self._word_times.follow(None)
            else:
                self._word_times.follow(partial(self._reached_ms, times.reached_ms), times.delay_ms)
        self._begin_credit(segment)

    def _reached_ms(self, reached_ms: ReachedMs, char: int) -> float | None:
        """Return when a character begins in the audio that is sent."""
        at_ms = reached_ms(char)
        if at_ms is None:
            return None
        return max(0.0, at_ms - self.frames.unsent_samples * 1000 / self._info.sample_rate_hz)

    def _begin_credit(self, segment: Segment) -> None:
        """Count credit from here on."""
        assert segment.credit is not None, "it was opened"
        self._frames_before = self._state.num_frames
        segment.credit.begin(self._taken_samples, self._frames_before)
        self.extend_credit()

    @property
    def _taken_samples(self) -> int:
        """How many samples were sent, as if the silence that is left out had been."""
        audio = self._state.spec.audio
        per_sample = audio.sample_rate_hz / (audio.native_rate_hz * audio.speed)
        return self._state.sent_samples + round(self.frames.unsent_samples * per_sample)

    def _receive(self, event: PcmChunk | StreamEnd, segment: Segment) -> None:
        if isinstance(event, PcmChunk):
            moved_at = segment.stream.moved_at if segment.stream is not None else None
            said_at = self._said_at(segment)
            samples = self.frames.push(event, is_kept=segment.is_kept, said_at=said_at, moved_at=moved_at)
            self._statistics.received(event, len(samples), is_kept=segment.is_kept)
            if segment.repeatable is not None and not segment.is_kept:
                self._spoken.add(event)
            self._word_times.push_audio(samples)
            # More frames are needed to judge those held back, or for the first sound.
            if self.frames.num_waiting > self.num_due or len(samples) < len(event.samples):
                self.extend_credit()
            return
        self.end = event
        self._statistics.ended(event)
        if event.reason is FinishReason.COMPLETED and not self._missed_end:
            self._word_times.end_audio()
            self._segments.keep(segment, self._spoken)

    async def _stop(self, stream: EngineStream | PhraseStream) -> None:
        """Cancel the stream and wait for its end, so that its place is free."""
        stream.cancel()
        while not self._stream_over:
            event = await stream.next_event()
            if isinstance(event, StreamEnd):
                self._stream_over = True
                self._statistics.ended(event)

    def _end_where_it_was_over(self) -> None:
        """End the segment where its text was said. Another draw could only add something, or miss its end again."""
        self.end = None
        self.take_back(self.frames.num_frames - self.frames.num_over)
        self._spoken.give_up()
        self._statistics.num_missed_ends += 1
        self.end = StreamEnd(FinishReason.COMPLETED, self.frames.num_frames, 0.0, 0.0)
        self._word_times.end_audio()

    def _set_back(self, segment: Segment) -> None:
        """Open another stream that continues after the frames that were kept, unless there is nothing to speak."""
        if not (segment.speakable or self.frames.num_frames):
            return
        segment.detach()
        num_known = self.frames.num_frames
        known = self.frames.codes(num_known) if num_known else None
        self._segments.open(segment, self._pacer.ahead_frames(), known, num_known)
        self._take_up(segment)

    async def _speak_revised(self, segment: Segment) -> None:
        """Set the segment back with its new text, if there is anything to speak in it."""
        assert self.stream is not None, "it was opened"
        await self._stop(self.stream)
        if not self.frames.num_frames:
            await segment.until_ready()
            if not segment.speakable:
                segment.revised, self.stream = False, None
                return
        await self._part.do(self._set_back, segment)

    # Whether the stream still speaks its text

    @property
    def _is_watched(self) -> bool:
        is_kept = self.segment is not None and self.segment.is_kept
        return not (is_kept or self._state.spec.params.sampling.ignore_eos)

    @property
    def _may_heal(self) -> bool:
        return self._is_watched and self._num_heals < MAX_HEALS

    def _count_heal(self) -> None:
        self._num_heals += 1
        self._statistics.num_heals += 1

    def _says_nothing(self, segment: Segment) -> bool:
        """Whether the model took what it carries on from for all of the text: a fresh prompt makes it speak."""
        is_over = self.end is not None and self.end.reason is FinishReason.COMPLETED
        return is_over and segment.carried is not None and segment.speakable and not self.frames.num_frames

    def _said_at(self, segment: Segment) -> int | None:
        """Return the frame from which on the segment may be over, or None while that is not known."""
        stream = segment.stream
        if not isinstance(stream, EngineStream) or (said_at := stream.said_at) is None:
            return None
        return max(said_at, self._state.spec.params.sampling.min_frames)

    @property
    def _missed_end(self) -> bool:
        """Whether the stream went on after its text. The answer must not depend on how many frames come at once."""
        return self.frames.missed_end and self._is_watched and (self.end is None or self.end.reason in _CAN_BE_OVER)

    def _num_good(self) -> int | None:
        """Return how many good frames to keep if the stream should be set back to heal it, else None."""
        num_good = self.frames.num_good
        is_lost = self.end is not None and self.end.reason in _SPEAKS_NO_MORE
        if not self._may_heal or not (is_lost or (self.end is None and num_good < self.frames.num_frames)):
            return None
        if num_good == self.frames.num_frames:  # the engine ended it, and does not say which frames are good
            num_good = 0
        is_worth_it = self.frames.num_frames - max(num_good, self.frames.num_given) >= MIN_FRAMES_AGAIN
        return num_good if is_worth_it else None

    def _is_lost_unheard(self, events: Sequence[PcmChunk | StreamEnd]) -> bool:
        """Return whether the workers died before any frame was taken, so that others can speak it all, once."""
        if self._reopened or self._state.num_frames != self._frames_before or not events:
            return False
        last = events[-1]
        return isinstance(last, StreamEnd) and last.reason is FinishReason.UNAVAILABLE

    async def _reopen(self, segment: Segment) -> bool:
        """Open the stream again on other workers. Return False if there are none."""
        self._reopened = True
        try:
            await self._part.do(self._set_back, segment)
        except (EngineOverloaded, EngineUnavailable):
            return False
        return True
