"""The speech of one utterance, segment by segment: what is to be done next, and which frames may be heard. Pure.

Its methods tell it what happened (`begin`, `opened`, `take`, ...), and `State` says what is to be done next. Speech
that goes wrong, or whose text is revised, is set back: another stream continues after the frames that stay. A stream
that has said its text and does not stop is ended. Frames that were given out always stay.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import partial

from sonorant.engine import (
    EngineStream,
    EngineUnavailable,
    FinishReason,
    PcmChunk,
    StreamEnd,
    StreamFailed,
)
from sonorant.service.text.revision import heard_to
from sonorant.service.utterance.part import ReachedMs
from sonorant.service.utterance.phrases import PhraseStream, SpokenPhrase
from sonorant.service.utterance.requests import UtteranceSpec
from sonorant.service.utterance.resumption import KnownSegment, Resumption, Skipped
from sonorant.service.utterance.segment_frames import SegmentFrames
from sonorant.service.utterance.segments import Segment, Segments
from sonorant.service.utterance.signs import BABBLE_LONGER, STANDING, SUSPECT_STANDING
from sonorant.service.utterance.statistics import Statistics
from sonorant.service.utterance.word_times import WordTimes, skipped
from sonorant.tts.v1 import audio_pb2

MAX_HEALS = 2  # per utterance
MIN_FRAMES_AGAIN = 8  # fewer bad frames are not worth another try
_CAN_BE_OVER = (FinishReason.COMPLETED, FinishReason.MAX_FRAMES, FinishReason.RUNAWAY, FinishReason.NO_SCORES)
_SPEAKS_NO_MORE = (FinishReason.RUNAWAY, FinishReason.NO_SCORES)
_ENDS_WELL = (FinishReason.COMPLETED, FinishReason.MAX_FRAMES, FinishReason.RUNAWAY)


class State(Enum):
    """Of the current segment, and what is to be done."""

    WAITING = auto()  # if it `needs_stream`, open one after the frames that there are; else wait for text
    SPEAKING = auto()  # take what the stream makes
    SET_BACK = auto()  # cancel the stream; after its end, another continues after the frames that stay
    ENDING = auto()  # cancel the stream, as its text is said; when its end has come, its place is free
    OVER = auto()  # all is made, or nothing more can be: give out the frames that are left, and what follows them
    GIVEN = auto()  # that is done: go on with the next segment


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.WAITING: frozenset({State.SPEAKING, State.OVER}),
    # WAITING: its workers died before any frame came
    State.SPEAKING: frozenset({State.WAITING, State.SET_BACK, State.ENDING, State.OVER}),
    State.SET_BACK: frozenset({State.WAITING}),
    State.ENDING: frozenset({State.SET_BACK, State.OVER}),
    State.OVER: frozenset({State.WAITING, State.GIVEN}),  # WAITING: revised, or made again
    State.GIVEN: frozenset({State.WAITING}),  # of the next segment
}


class Speech:
    def __init__(
        self,
        spec: UtteranceSpec,
        segments: Segments,
        word_times: WordTimes,
        statistics: Statistics,
        resumption: Resumption | None,
        *,
        whole: bool,
    ) -> None:
        """`resumption`: set if another session began it. `whole`: nobody hears anything before the end."""
        self.spec = spec
        self.segments = segments
        self.word_times = word_times
        self.statistics = statistics
        # The audio that another session sent, if there was one
        self.skipped = None if resumption is None else Skipped(resumption, spec.audio, spec.info.frame_samples)
        self._whole = whole
        self._num_heals = 0
        self._reopened = False  # only once, so that an utterance that kills workers cannot kill one after another
        # Of the current segment:
        self.state = State.GIVEN
        self.segment = Segment(spec.audio)  # the first one's turn has not come
        self.stream: EngineStream | PhraseStream | None = None  # the latest one, until its end
        self.frames = SegmentFrames(spec.info.frame_samples, spec.info.num_codebooks)
        self.known: KnownSegment | None = None  # frames that another session sent
        self.is_heard = False  # whether these are all of them
        self.end: StreamEnd | None = None  # the end of the segment's speech
        self._frames_before = 0  # the utterance's frames when the stream was opened
        self._is_kept = False  # whether the stream comes from the phrase cache
        self._is_watched = False  # whether the stream may go wrong
        self._spoken: SpokenPhrase | None = None  # collects the stream's frames, if they may go into the phrase cache

    @property
    def needs_stream(self) -> bool:
        is_to_speak = self.segment.speakable or self.frames.num_frames > 0
        return self.state is State.WAITING and not self.is_heard and is_to_speak

    @property
    def reason(self) -> FinishReason:
        """How the segment has ended. Raises EngineUnavailable or StreamFailed."""
        if self.end is None:
            return FinishReason.COMPLETED  # there was nothing to speak
        if self.end.reason in _ENDS_WELL:
            return self.end.reason
        if self.end.reason is FinishReason.UNAVAILABLE:
            raise EngineUnavailable(self.end.detail or "the engine stopped; try again")
        raise StreamFailed(self.end.detail or f"the engine ended a stream with {self.end.reason.name}")

    @property
    def num_due(self) -> int:
        """How many frames may be given out: all that wait, except those that may have to be made again."""
        num_waiting = self.frames.num_waiting
        if self.end is not None or not self._is_watched:
            return num_waiting
        if self._whole:
            return 0  # each segment is made to its end first
        if self.frames.signs.is_clear:
            return num_waiting
        if self.state is not State.SPEAKING:
            return num_waiting  # these stay
        if self._num_heals >= MAX_HEALS:
            return num_waiting - self.frames.num_over
        num_standing = self.frames.signs.num_standing - SUSPECT_STANDING if self.babbles(SUSPECT_STANDING) else 0
        return max(0, num_waiting - max(self.frames.num_suspect, num_standing))

    def babbles(self, num_frames: int = STANDING) -> bool:
        """Whether the last so many frames make sounds at one place of the text, in speech that is too long for it."""
        is_lost = self.end is not None and self.end.reason not in _ENDS_WELL
        if is_lost or not self._is_watched or self.frames.signs.num_standing < num_frames:
            return False
        made_ms = self.frames.num_frames * 1000 / self.spec.info.frame_rate_hz
        return made_ms >= BABBLE_LONGER * self.word_times.usual_ms

    @property
    def is_all_made(self) -> bool:
        """Whether the engine has made all of the utterance, and nothing has to be made again."""
        segment, end = self.segments.current, self.end
        is_last = segment is self.segment and segment.end is not None and segment.end.last
        return is_last and end is not None and end.reason is FinishReason.COMPLETED

    @property
    def is_set_back(self) -> bool:
        """Whether the current segment has to be opened in its turn."""
        return self.segment is self.segments.current and self.state in (State.WAITING, State.SET_BACK)

    def heard_to(self, text: str) -> int:
        """Return how far the text may have been heard in the frames given out: up to there it cannot be revised."""
        respell, current = self.spec.lexicon.respell, self.segments.current
        heard = current.start_char
        if current is self.segment:
            if self.state is State.GIVEN or self.is_heard:
                heard = self.segments.end_char(current)
            elif self.frames.num_given:
                heard = heard_to(text, current.start_char, self.frames.num_given, respell)
        if self.skipped is not None and self.skipped.has_more:  # another session sent audio that is still to be skipped
            heard = max(heard, heard_to(text, 0, self.skipped.num_frames(self.segments.fastest), respell))
        return heard

    # What happened

    def begin(self, segment: Segment) -> None:
        """The segment's turn has come, and there is something to say in it, or there never will be."""
        self._move(State.WAITING)
        self.segment, self.stream, self.end = segment, None, None
        # Stored codes are kept whole. Speech that carries on does not begin, so its silence is a speaker's pause.
        is_stored = self.spec.audio.encoding == audio_pb2.AUDIO_ENCODING_CODES
        info, begins = self.spec.info, not is_stored and segment.carried is None
        self.frames = SegmentFrames(
            info.frame_samples,
            info.num_codebooks,
            info.silent_first_frames if begins else 0,
            info.ends_quieter_db if begins and segment.number else 0.0,
        )
        self.known, self.is_heard = None, False
        if self.skipped is not None:
            self._skip(segment, self.skipped)

    def text_came(self) -> None:
        """Text has come, or it has ended."""
        if self.state is State.WAITING and self.segment.end is not None and not self.needs_stream:
            self.word_times.end_audio()
            self._move(State.OVER)

    def opened(self) -> None:
        """The segment has got a stream."""
        self._move(State.SPEAKING)
        self.stream, self.end = self.segment.stream, None
        self._is_kept = self.segment.is_kept
        self._is_watched = not (self._is_kept or self.spec.params.sampling.ignore_eos)
        self._frames_before = self.statistics.num_frames
        self.close()
        if self.segment.repeatable is not None and not self._is_kept:
            self._spoken = self.segments.gather()
        if self.spec.times_words:  # phrases in the cache have no times
            times = self.stream.text_times if isinstance(self.stream, EngineStream) else None
            self.word_times.follow(None if times is None else partial(self._reached_ms, times.reached_ms))

    def not_opened(self) -> bool:
        """There was no place. Return whether that is all the same, as the stream was lost: its end says why."""
        if self.end is None:
            return False
        self._move(State.OVER)
        return True

    def take(self, events: Sequence[PcmChunk | StreamEnd]) -> bool:
        """The stream has made something. Return whether it must make more before any of that can be heard."""
        if isinstance(last := events[-1], StreamEnd) and self._is_lost_unheard(last):
            self._reopened, self.end = True, last
            self._move(State.WAITING)  # others may speak it all
            return False
        unsent_samples = self.frames.unsent_samples
        for event in events:
            if isinstance(event, StreamEnd):
                self._ended(event)
            elif self.state is State.SPEAKING:
                self._receive(event)
        is_clear = self.end is None and self.frames.signs.is_clear
        if self._is_watched and not is_clear and self.state in (State.SPEAKING, State.OVER):
            self._judge()
        return self.frames.num_waiting > self.num_due or self.frames.unsent_samples != unsent_samples

    def revise(self, segment: Segment, spoken: Sequence[str | None]) -> int:
        """A segment's text is revised, and its stream is cancelled next. `spoken`: the new text. Return how many frames
        are taken back, as they depend on the old one."""
        if segment is not self.segment or self.stream is None:
            return 0
        before = self.frames.num_frames
        # Without a stream, an earlier revision has not been opened yet.
        self._take_back(0 if segment.stream is None else segment.frames_in_common(spoken))
        if self.state in (State.SPEAKING, State.ENDING):
            self._move(State.SET_BACK)
        elif self.state is State.OVER:
            self._move(State.WAITING)
        return before - self.frames.num_frames

    def skipped_words(self) -> list[str]:
        """Return words of the segment, which is over, that the model has passed over by its own report. None is known
        of frames that another session made, or that come from the phrase cache."""
        times = self.stream.text_times if isinstance(self.stream, EngineStream) and self.known is None else None
        return [] if times is None else skipped(self.segment.text, times.reached_ms, self.spec.info.gives_letters)

    def gave_all(self) -> None:
        """All frames of the segment were given out, and what follows them."""
        self._move(State.GIVEN)

    def close(self) -> None:
        """The stream or the utterance is over. Drop what was collected for the phrase cache."""
        if self._spoken is not None:
            self._spoken.give_up()
            self._spoken = None

    # Inside

    def _move(self, state: State) -> None:
        """Change the state. Raises RuntimeError for a change that is not in TRANSITIONS, which is a bug."""
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a segment cannot go from {self.state.name} to {state.name}")
        self.state = state

    def _skip(self, segment: Segment, skipped: Skipped) -> None:
        """Take what another session sent of the segment."""
        if segment.stream is None:
            segment.draw = skipped.draw_of_segment(segment.number)
        known = skipped.of_segment(segment.number, segment.sound.speed) if segment.speakable else None
        if known is None:
            return
        self.known, self.is_heard = known, known.complete
        self.frames.known(known.codes, known.unsent_samples)
        num_samples = self.frames.num_samples(len(known.codes))
        self.statistics.num_frames += len(known.codes)
        self.statistics.received_samples += num_samples
        self.word_times.skip_audio(num_samples)

    def _reached_ms(self, reached_ms: ReachedMs, char: int) -> float | None:
        """Return when a character begins in the audio that is sent."""
        at_ms = reached_ms(char)
        if at_ms is None:
            return None
        return max(0.0, at_ms - self.frames.unsent_samples * 1000 / self.spec.info.sample_rate_hz)

    def _receive(self, chunk: PcmChunk) -> None:
        assert self.stream is not None, "it was opened"
        said_at, moved_at = self.stream.how_far()
        if said_at is not None:
            said_at = max(said_at, self.spec.params.sampling.min_frames)
        is_kept = self._is_kept
        samples = self.frames.push(chunk, is_kept=is_kept, said_at=said_at, moved_at=moved_at)
        self.statistics.received(chunk, len(samples), is_kept=is_kept)
        if self._spoken is not None:
            self._spoken.add(chunk)
        self.word_times.push_audio(samples)

    def _ended(self, end: StreamEnd) -> None:
        self.statistics.ended(end)
        if self.state is State.SET_BACK:
            self._move(State.WAITING)
            return
        was_stopped = self.state is State.ENDING
        self._move(State.OVER)
        if was_stopped:
            self._end_where_said()
            return
        self.end = end
        if end.reason is FinishReason.COMPLETED and not self._missed_end:
            self.word_times.end_audio()
            if self._spoken is not None and not self.babbles():
                self.segments.keep(self.segment, self._spoken)

    def _take_back(self, num_frames: int) -> None:
        """Keep `num_frames` of the segment, or more if more were given out."""
        dropped, num_samples = self.frames.num_frames, self.frames.num_samples(self.frames.num_frames)
        num_kept = self.frames.take_back(num_frames)
        dropped -= num_kept
        num_samples -= self.frames.num_samples(num_kept)
        self.statistics.taken_back(dropped, num_samples)
        was_ended = self.end is not None and self.end.reason is FinishReason.COMPLETED
        self.word_times.take_back_audio(num_samples, was_ended=was_ended)
        self.end = None

    # Whether the stream still speaks its text

    def _judge(self) -> None:
        """Look whether the stream goes wrong, and set it back or end it."""
        segment, is_over = self.segment, self.state is State.OVER
        if self._missed_end:
            # Another draw could only add something, or miss its end again.
            self.end = None
            self._take_back(self.frames.num_frames - self.frames.num_over)
            self.close()
            self.statistics.num_missed_ends += 1
            if is_over:
                self._end_where_said()
            else:
                self._move(State.ENDING)
        elif segment.carried is not None and self._says_nothing:
            segment.carried = None
            self._heal(0)
        elif self.babbles() and self._is_worth_healing(self.frames.signs.stands_from):
            segment.draw = self._num_heals + 1
            self._heal(self.frames.signs.stands_from)
        elif (num_good := self._num_good()) is not None:
            segment.draw = self._num_heals + 1
            self._heal(num_good)

    def _heal(self, num_frames: int) -> None:
        """Have another stream continue after `num_frames`."""
        self._num_heals += 1
        self.statistics.num_heals += 1
        self._take_back(num_frames)
        self._move(State.WAITING if self.state is State.OVER else State.SET_BACK)

    def _end_where_said(self) -> None:
        self.end = StreamEnd(FinishReason.COMPLETED, self.frames.num_frames, 0.0, 0.0)
        self.word_times.end_audio()

    @property
    def _missed_end(self) -> bool:
        """Whether the stream went on after its text. The answer must not depend on how many frames come at once."""
        return (
            self._is_watched and self.frames.signs.missed_end and (self.end is None or self.end.reason in _CAN_BE_OVER)
        )

    @property
    def _says_nothing(self) -> bool:
        """Whether the model took what it carries on from for all of the text: a fresh prompt makes it speak."""
        is_over = self.end is not None and self.end.reason is FinishReason.COMPLETED
        return is_over and self.segment.speakable and not self.frames.num_frames

    def _num_good(self) -> int | None:
        """Return how many good frames to keep if the stream should be set back to heal it, else None."""
        num_good = self.frames.num_good
        is_lost = self.end is not None and self.end.reason in _SPEAKS_NO_MORE
        if not (is_lost or (self.end is None and num_good < self.frames.num_frames)):
            return None
        if num_good == self.frames.num_frames:  # the engine ended it, and does not say which frames are good
            num_good = 0
        return num_good if self._is_worth_healing(num_good) else None

    def _is_worth_healing(self, num_good: int) -> bool:
        """Whether enough frames would be made again, if so many of them are good."""
        num_bad = self.frames.num_frames - max(num_good, self.frames.num_given)
        return self._num_heals < MAX_HEALS and num_bad >= MIN_FRAMES_AGAIN

    def _is_lost_unheard(self, end: StreamEnd) -> bool:
        """Whether the stream's workers died before any frame was taken: others can speak it all, once."""
        is_lost = end.reason is FinishReason.UNAVAILABLE and self.statistics.num_frames == self._frames_before
        return is_lost and self.state is State.SPEAKING and not self._reopened
