"""The current segment on the engine's side: its stream, what came of it, and what is made again. Sends nothing.

A stream that goes wrong, or whose text is revised, is set back: another one takes its place, behind the frames that
stay. One that has said its text and goes on is ended. What was given out stays in any case.
"""

from collections.abc import Sequence

from sonorant.engine import (
    EngineOverloaded,
    EngineStream,
    EngineUnavailable,
    FinishReason,
    Int16Array,
    PcmChunk,
    StreamEnd,
)
from sonorant.service.speak.made import Made
from sonorant.service.speak.pacer import Pacer
from sonorant.service.speak.phrases import PhraseStream
from sonorant.service.speak.segments import Segment, Segments
from sonorant.service.speak.state import UtteranceState
from sonorant.service.speak.statistics import Statistics
from sonorant.service.speak.word_times import WordTimes

MAX_HEALS = 2  # of an utterance
MIN_FRAMES_AGAIN = 8  # fewer are not worth another try
_CAN_BE_OVER = (FinishReason.COMPLETED, FinishReason.MAX_FRAMES, FinishReason.RUNAWAY, FinishReason.NO_SCORES)
_SPEAKS_NO_MORE = (FinishReason.RUNAWAY, FinishReason.NO_SCORES)


class Making:
    def __init__(
        self,
        state: UtteranceState,
        segments: Segments,
        word_times: WordTimes,
        pacer: Pacer,
        statistics: Statistics,
        *,
        whole: bool,
    ) -> None:
        """`whole`: nobody hears a part of it, so each segment is waited for."""
        self._state = state
        self._info = state.spec.info
        self._segments = segments
        self._word_times = word_times
        self._pacer = pacer
        self._statistics = statistics
        self._whole = whole
        self._num_heals = 0
        self._reopened = False  # workers that die of an utterance are not to die one after another
        self._frames_before = 0  # that were made when the stream was opened
        self._stream_over = False  # it has told its end
        self._spoken = segments.gather()  # of the stream
        self.segment: Segment | None = None
        self.stream: EngineStream | PhraseStream | None = None
        self.made = Made(self._info.frame_samples, self._info.num_codebooks)
        self.end: StreamEnd | None = None  # of the segment's speech

    def begin(self, segment: Segment) -> None:
        """Its turn has come, without a stream of its own so far."""
        if segment is not self.segment:
            self.segment, self.stream, self.end = segment, None, None
            self.made = Made(self._info.frame_samples, self._info.num_codebooks)

    def open(self, segment: Segment, known: Int16Array | None = None) -> None:
        """Raises EngineOverloaded or EngineUnavailable. `known`: see `Segments.open`."""
        if segment.stream is None:
            self._segments.open(segment, self._pacer.ahead_frames(), known)
        self._take_up(segment)

    def skip(self, codes: Int16Array) -> None:
        """These frames [frames, codebooks], with which the stream was opened, were heard elsewhere."""
        self.made.known(codes)
        num_samples = len(codes) * self._info.frame_samples
        self._state.num_frames += len(codes)
        self._state.received_samples += num_samples
        self._word_times.skip_audio(num_samples)
        if self.segment is not None and self.segment.credit is not None:
            self._begin_credit(self.segment)

    @property
    def num_due(self) -> int:
        """Frames that may be given out: all that wait, but for those that may have to be made again."""
        num_waiting = self.made.num_waiting
        if self.segment is not None and self.segment.revised:
            return num_waiting
        if self.end is not None or not self._is_watched:
            return num_waiting
        if self._whole:
            return 0
        return num_waiting - (self.made.num_suspect if self._may_heal else self.made.num_over)

    async def go_on(self, *, wait: bool) -> None:
        """Take all that has come of the stream, so that the end is known as early as it can be; `wait` for something.

        Raises EngineOverloaded or EngineUnavailable, should it have to be set back.
        """
        segment, stream = self.segment, self.stream
        assert segment is not None and stream is not None, "it was opened"
        if not segment.revised and self.end is None:
            events = stream.ready_events() or ([await stream.next_event()] if wait else [])
            self._stream_over = bool(events) and isinstance(events[-1], StreamEnd)
            if not segment.revised:
                if self._is_lost_unheard(events) and self._reopen(segment):
                    return
                for event in events:
                    self._receive(event, segment)
        if segment.revised:
            await self._speak_revised(segment)
        elif self._missed_end:
            await self._stop(stream)
            if not segment.revised:
                self._end_where_it_was_over()
        elif (num_good := self._num_good()) is not None:
            self._num_heals += 1
            self._statistics.num_heals += 1
            segment.draw = self._num_heals
            await self._stop(stream)
            self.take_back(num_good)
            self._set_back(segment)

    def extend_credit(self) -> None:
        """Let the engine make what may be sent soon."""
        if self.segment is not None and self.segment.credit is not None:  # else it is a pause
            ahead = self._pacer.ahead_frames() + self.made.num_waiting - self.num_due
            self.segment.credit.extend(self._state.sent_samples, self._state.num_frames, ahead)

    def take_back(self, num_frames: int) -> None:
        """Keep so many frames of the segment, or as many as were given out. Its stream must be set back then."""
        dropped = self.made.num_frames
        dropped -= self.made.take_back(num_frames)
        num_samples = dropped * self._info.frame_samples
        self._statistics.taken_back(dropped, num_samples)
        was_ended = self.end is not None and self.end.reason is FinishReason.COMPLETED
        self._word_times.take_back_audio(num_samples, was_ended=was_ended)
        self.end = None

    def revise(self, segment: Segment, spoken: Sequence[str | None]) -> int:
        """Its text is another from some place on: take back what knew the old one. How many frames these are."""
        if segment is not self.segment or self.stream is None:
            if segment.stream is not None:
                segment.stream.cancel()
                segment.detach()
            return 0
        before = self.made.num_frames
        if segment.stream is not None:
            self.take_back(segment.frames_in_common(spoken))
            segment.stream.cancel()
            segment.detach()
        else:  # it was revised a moment ago, and its stream is not back yet
            self.take_back(0)
        segment.revised = True
        self._pacer.changed()
        return before - self.made.num_frames

    def give_up_phrase(self) -> None:
        """The utterance is over."""
        self._spoken.give_up()

    # The stream

    def _take_up(self, segment: Segment) -> None:
        self.stream, self._stream_over = segment.stream, False
        self._spoken.give_up()
        self._spoken = self._segments.gather()
        if self._state.spec.times_words:  # a phrase that is kept has no times
            times = self.stream.text_times if isinstance(self.stream, EngineStream) else None
            self._word_times.follow(None if times is None else times.reached_ms)
        self._begin_credit(segment)

    def _begin_credit(self, segment: Segment) -> None:
        """From here on the engine makes it."""
        assert segment.credit is not None, "it was opened"
        self._frames_before = self._state.num_frames
        segment.credit.begin(self._state.sent_samples, self._frames_before)
        self.extend_credit()

    def _receive(self, event: PcmChunk | StreamEnd, segment: Segment) -> None:
        if isinstance(event, PcmChunk):
            self.made.push(event, is_kept=segment.is_kept, said_at=self._said_at(segment))
            self._statistics.received(event, is_kept=segment.is_kept)
            if segment.repeatable is not None and not segment.is_kept:
                self._spoken.add(event)
            self._word_times.push_audio(event.samples)
            if self.made.num_waiting > self.num_due:  # what is held back needs company
                self.extend_credit()
            return
        self.end = event
        self._statistics.ended(event)
        if event.reason is FinishReason.COMPLETED and not self._missed_end:
            self._word_times.end_audio()
            self._segments.keep(segment, self._spoken)

    async def _stop(self, stream: EngineStream | PhraseStream) -> None:
        """Its place is free then."""
        stream.cancel()
        while not self._stream_over:
            event = await stream.next_event()
            if isinstance(event, StreamEnd):
                self._stream_over = True
                self._statistics.ended(event)

    def _end_where_it_was_over(self) -> None:
        """Another draw could only say something more, or miss its end again."""
        self.end = None
        self.take_back(self.made.num_frames - self.made.num_over)
        self._spoken.give_up()
        self._statistics.num_missed_ends += 1
        self.end = StreamEnd(FinishReason.COMPLETED, self.made.num_frames, 0.0, 0.0)
        self._word_times.end_audio()

    def _set_back(self, segment: Segment) -> None:
        """Another stream, behind what was kept of the frames."""
        segment.detach()
        num_known = self.made.num_frames
        known = self.made.codes(num_known) if num_known else None
        self._segments.open(segment, self._pacer.ahead_frames(), known, num_known)
        self._take_up(segment)

    async def _speak_revised(self, segment: Segment) -> None:
        """With its new text, if there is anything to say in it."""
        assert self.stream is not None, "it was opened"
        await self._stop(self.stream)
        if not self.made.num_frames:
            await segment.until_ready()
            if not segment.speakable:
                segment.revised, self.stream = False, None
                return
        self._set_back(segment)

    # Whether it still speaks

    @property
    def _is_watched(self) -> bool:
        is_kept = self.segment is not None and self.segment.is_kept
        return not (is_kept or self._state.spec.params.sampling.ignore_eos)

    @property
    def _may_heal(self) -> bool:
        return self._is_watched and self._num_heals < MAX_HEALS

    def _said_at(self, segment: Segment) -> int | None:
        """The frame from which on it may be over; None while that is not known."""
        stream = segment.stream
        if not isinstance(stream, EngineStream) or (said_at := stream.said_at) is None:
            return None
        return max(said_at, self._state.spec.params.sampling.min_frames)

    @property
    def _missed_end(self) -> bool:
        """However it ends: whether it is found out must not depend on how much of it comes at once."""
        return self.made.missed_end and self._is_watched and (self.end is None or self.end.reason in _CAN_BE_OVER)

    def _num_good(self) -> int | None:
        """Behind how many frames it should be set back, since it no longer speaks and not all of that was given out."""
        num_good = self.made.num_good
        is_lost = self.end is not None and self.end.reason in _SPEAKS_NO_MORE
        if not self._may_heal or not (is_lost or (self.end is None and num_good < self.made.num_frames)):
            return None
        if num_good == self.made.num_frames:  # how it was found out says nothing of what is good
            num_good = 0
        is_worth_it = self.made.num_frames - max(num_good, self.made.num_given) >= MIN_FRAMES_AGAIN
        return num_good if is_worth_it else None

    def _is_lost_unheard(self, events: Sequence[PcmChunk | StreamEnd]) -> bool:
        """Its workers died before any of the segment was taken, so that others may speak all of it, once."""
        if self._reopened or self._state.num_frames != self._frames_before or not events:
            return False
        last = events[-1]
        return isinstance(last, StreamEnd) and last.reason is FinishReason.UNAVAILABLE

    def _reopen(self, segment: Segment) -> bool:
        """On other workers; False if there are none."""
        self._reopened = True
        try:
            self._set_back(segment)
        except (EngineOverloaded, EngineUnavailable):
            return False
        return True
