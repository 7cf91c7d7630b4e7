"""The segments of one utterance. Here, text waits for its stream, and streams wait for their turn."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sonorant.engine import EngineStream, Int16Array, SamplingParams, SynthesisParams
from sonorant.service.admission.reservations import Reservation
from sonorant.service.audio.writer import AudioSpec
from sonorant.service.errors import LimitReached
from sonorant.service.pacing.pacer import Credit
from sonorant.service.text.checks import is_speakable
from sonorant.service.text.markup import NEUTRAL, Manner
from sonorant.service.text.segmenter import EndSegment, Event, Text
from sonorant.service.utterance.phrases import CallerPhrases, PhraseStream, SpokenPhrase, is_greedy
from sonorant.service.utterance.requests import UtteranceSpec

MAX_PENDING_FLUSHES = 64
MAX_CARRIED_FRAMES = 250  # 20 s; more would take too long to prefill again
SEED_STEP = 0x9E3779B9  # from one draw to the next; large, so that it does not meet seeds that callers count up


@dataclass(frozen=True, slots=True)
class Carried:
    """What was spoken just before a segment that continues in the same voice state. Its stream begins with this."""

    spoken: tuple[str | None, ...]
    codes: Int16Array  # [frames, codebooks]


@dataclass(slots=True, eq=False)
class Segment:
    """Committed text. It is held until something in it can be spoken, then goes to the engine as it comes."""

    sound: AudioSpec  # how it sounds, by its manner
    number: int = 0  # within the utterance
    start_char: int = 0  # offset in the utterance's text
    carries_on: bool = False  # whether it continues in the voice state of the one before, if that can be `carried`
    # Whether all its text goes into the prompt, as only length ended the one before and the checkpoint wants that.
    # Listeners have that one to hear while this one's text comes.
    is_whole: bool = False
    manner: Manner = NEUTRAL
    num_chars: int = 0  # of the committed text, as it was written
    spoken: list[str | None] = field(default_factory=list)  # the text as spoken; None: the tail was released there
    speakable: bool = False
    end: EndSegment | None = None  # set when no more text comes
    ready: asyncio.Event = field(default_factory=asyncio.Event)  # there is something to say, or there never will be
    closed: asyncio.Event = field(default_factory=asyncio.Event)  # `end` is set
    draw: int = 0  # number of times that the model has to say it again, each time with another seed
    text_positions: tuple[float, ...] = ()  # of the frames of its earlier streams, if the engine reported them
    stream: EngineStream | PhraseStream | None = None
    credit: Credit | None = None  # of the stream
    carried: Carried | None = None
    repeatable: SynthesisParams | None = None  # for the phrase cache: with the text, they decide all frames

    @property
    def text(self) -> str:
        """What is to be spoken."""
        return "".join(text for text in self.spoken if text is not None)

    @property
    def num_longer(self) -> int:
        """How many characters longer the spoken text is than the written one."""
        return len(self.text) - self.num_chars

    async def until_ready(self) -> None:
        """Wait until there is something to say, or there never will be. A revision may undo this."""
        while not (self.speakable or self.end is not None):
            self.ready.clear()
            await self.ready.wait()

    def close(self, end: EndSegment) -> None:
        """End the text. Raises InvalidSynthesis."""
        self.end = end
        self.closed.set()
        self.ready.set()
        if self.stream is not None:
            self.stream.end_text()

    def attach(self, stream: EngineStream | PhraseStream, credit: Credit) -> None:
        """Take a stream, and push all text so far to it. Raises InvalidSynthesis."""
        self.stream, self.credit = stream, credit
        texts = (*self._spoken_before, *self.spoken)
        for number, text in enumerate(texts, 1):
            if text is None:
                stream.flush_text()
            else:
                stream.push_text(text, is_last=self.end is not None and number == len(texts))
        if self.end is not None:
            stream.end_text()

    def frames_in_common(self, spoken: Sequence[str | None]) -> int:
        """Return how many first frames depend only on what a new text has in common with the current one."""
        assert self.stream is not None, "it has frames"
        num_before = 0 if self.carried is None else len(self.carried.codes)
        return max(0, self.stream.frames_in_common([*self._spoken_before, *spoken]) - num_before)

    def empty(self) -> None:
        """Drop the text, as a revision follows. The stream, if there is one, must be detached first."""
        self.spoken = []
        self.num_chars = 0
        self.speakable = False
        self.end = None
        self.closed.clear()

    def detach(self) -> None:
        """Forget the stream."""
        if isinstance(self.stream, EngineStream):
            self.text_positions = self.stream.text_positions
        self.stream = self.credit = self.repeatable = None

    @property
    def _spoken_before(self) -> tuple[str | None, ...]:
        return () if self.carried is None else self.carried.spoken

    @property
    def is_kept(self) -> bool:
        """Whether its audio comes from the phrase cache."""
        return isinstance(self.stream, PhraseStream)


class Segments:
    def __init__(self, spec: UtteranceSpec, reservation: Reservation, phrases: CallerPhrases | None) -> None:
        """`phrases`: None if the phrase cache is off."""
        self.written: list[str] = []  # the text so far, in the pieces in which it was pushed
        self.num_frames_before = self.pause_ms_before = 0  # of all segments before the current one
        self.fastest = spec.audio.speed  # of all segments so far
        self._spec = spec
        self.reservation = reservation
        self.phrases = phrases
        self._segments = deque([Segment(spec.audio)])

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def current(self) -> Segment:
        """The segment that is being spoken, or will be next."""
        return self._segments[0]

    @property
    def last(self) -> Segment:
        """The segment that takes the text that comes next."""
        return self._segments[-1]

    def finish_current(self, codes: Int16Array) -> None:
        """Remove the current segment, all of which was sent. `codes`: its frames, [frames, codebooks]."""
        over = self._segments.popleft()
        assert over.end is not None, "it is complete"
        self.num_frames_before += len(codes)
        self.pause_ms_before += over.end.pause_ms
        if self.current.carries_on:
            self.current.carried = _carried(over, codes, min(MAX_CARRIED_FRAMES, self._spec.info.max_context // 4))

    def check_flush(self) -> None:
        """Raise LimitReached if too many flushes wait already."""
        if sum(each.end is not None and each.end.flush_id is not None for each in self) >= MAX_PENDING_FLUSHES:
            raise LimitReached("flushes", f"{MAX_PENDING_FLUSHES} flushes wait to be spoken; flush less often")

    def apply(self, event: Event) -> Segment:
        """Apply an event of the segmenter, and return the segment that it is about. Raises InvalidSynthesis."""
        segment = self._segments[-1]
        match event:
            case Text(written=written, spoken=spoken, manner=manner):
                segment.num_chars += len(written)
                if manner is not segment.manner:
                    segment.manner, segment.sound = manner, self._spec.audio.varied(manner.gain_db, manner.speed)
                    self.fastest = max(self.fastest, segment.sound.speed)
                if spoken:
                    if segment.spoken and (before := segment.spoken[-1]) is not None:
                        segment.spoken[-1] = before + spoken  # one piece costs a later stream less
                    else:
                        segment.spoken.append(spoken)
                    if segment.stream is not None:
                        segment.stream.push_text(spoken)
                    if not segment.speakable and is_speakable(spoken):
                        segment.speakable = spoken.isascii() or self._spec.info.gives_letters(spoken)
                        if segment.speakable:
                            segment.ready.set()
            case EndSegment(last=last, carries_on=carries_on, by_length=by_length):
                segment.close(event)
                if not last:
                    start_char = segment.start_char + segment.num_chars
                    number, is_whole = segment.number + 1, by_length and self._spec.info.whole_after_cut
                    self._segments.append(Segment(self._spec.audio, number, start_char, carries_on, is_whole))
        return segment

    def at(self, char: int) -> Segment:
        """Return the segment that contains an offset of the text; of two that meet there, the later one."""
        return next(segment for segment in reversed(self._segments) if segment.start_char <= char)

    def end_char(self, segment: Segment) -> int:
        """Return the offset at which the segment's text ends so far."""
        return segment.start_char + segment.num_chars

    def revise(self, segment: Segment) -> list[EndSegment]:
        """Drop the segment's text and all segments after it, before a revision. Return the ends that were dropped."""
        ends = [segment.end] if segment.end is not None else []
        while (last := self._segments[-1]) is not segment:
            self._segments.pop()
            if last.stream is not None:
                last.stream.cancel()
            if last.end is not None:
                ends.append(last.end)
        segment.empty()
        return ends

    def open(
        self,
        segment: Segment,
        credit_frames: int,
        known_codes: Int16Array | None = None,
        told: tuple[tuple[int, float], ...] = (),
    ) -> None:
        """Give the segment its stream. Raises what `Reservation.open` raises.

        `credit_frames`: how many frames it may make after the known ones. `known_codes` [frames, codebooks]: frames of
        the segment that it continues. `told`: when their words are over, if another session told that.
        """
        spec = self._spec
        if (carried := segment.carried) is not None:
            known_codes = carried.codes if known_codes is None else np.concatenate([carried.codes, known_codes])
        params = self._params(segment)
        prompt = spec.prompt if params is spec.params else None
        phrase = None
        if self.phrases is not None and known_codes is None and not segment.draw and self._is_certain(params):
            segment.repeatable = params
            if segment.end is not None:
                phrase = self.phrases.find_and_count(spec.voice_id, params, segment.spoken)
        stream: EngineStream | PhraseStream
        if phrase is not None:
            stream = PhraseStream(phrase, spec.info.frame_samples)
        else:
            if spec.info.times_text and carried is None:  # the times of carried frames may be unknown
                num_known = 0 if known_codes is None else len(known_codes)
                params = replace(params, times_text=segment.text_positions[:num_known], times_told=told)
            stream = self.reservation.open(params, credit_frames, known_codes, prompt)
        segment.attach(stream, Credit(stream, credit_frames, segment.sound, spec.info.frame_samples))

    def may_be_phrase(self, segment: Segment) -> bool:
        """Return whether the text so far is in the phrase cache, so that it can be used if no more text comes."""
        if self.phrases is None or segment.end is not None or segment.carried is not None:
            return False
        params = self._params(segment)
        if not self._is_certain(params):
            return False
        return self.phrases.find(self._spec.voice_id, params, segment.spoken) is not None

    def gather(self) -> SpokenPhrase | None:
        """Return what collects a segment's frames for the phrase cache, if that is on."""
        return None if self.phrases is None else self.phrases.gather()

    def keep(self, segment: Segment, spoken: SpokenPhrase) -> None:
        """Put a segment into the phrase cache, if all of it was made at the first try."""
        if segment.repeatable is not None:
            spoken.keep(self._spec.voice_id, segment.repeatable, segment.spoken)

    def _is_certain(self, params: SynthesisParams) -> bool:
        """Whether chance decides nothing."""
        return self._spec.seed_given or is_greedy(params)

    def _params(self, segment: Segment) -> SynthesisParams:
        spec = self._spec
        params = spec.params
        sampling = params.sampling
        if segment.draw:
            sampling = drawn_again(sampling, spec.info.default_sampling, segment.draw)
        if spec.max_frames_given:  # for the utterance, not for each of its segments
            num_carried = 0 if segment.carried is None else len(segment.carried.codes)
            left = params.sampling.max_frames - self.num_frames_before + num_carried
            sampling = replace(sampling, max_frames=left)
        instruct = f"{params.instruct} {segment.manner.instructions}".strip()
        whole = params.non_streaming_mode or segment.is_whole
        if sampling is params.sampling and instruct == params.instruct and whole == params.non_streaming_mode:
            return params
        return replace(params, sampling=sampling, instruct=instruct, non_streaming_mode=whole)

    def cancel(self) -> None:
        """Stop the engine's work at once, and give the place in the engine back."""
        self.reservation.give_up()
        for segment in self:
            if segment.stream is not None:
                segment.stream.cancel()


def _carried(over: Segment, codes: Int16Array, max_frames: int) -> Carried | None:
    """Return what the next segment's stream begins with, or None if that is nothing or too long."""
    if not len(codes):
        return over.carried
    spoken: tuple[str | None, ...] = (*over.spoken, None)  # None, so that later text changes none of its tokens
    if over.carried is not None:
        spoken = over.carried.spoken + spoken
        codes = np.concatenate([over.carried.codes, codes])
    return Carried(spoken, codes) if len(codes) <= max_frames else None


def drawn_again(sampling: SamplingParams, default: SamplingParams, draw: int) -> SamplingParams:
    """Return the settings for another draw, with another seed.

    Greedy settings would give the same again, so they become the checkpoint's default sampling.
    """
    seed = (sampling.seed + draw * SEED_STEP) % 2**32
    if sampling.do_sample or sampling.subtalker_do_sample:
        return replace(sampling, seed=seed)
    return replace(
        default,
        seed=seed,
        do_sample=True,
        min_frames=sampling.min_frames,
        max_frames=sampling.max_frames,
        ignore_eos=sampling.ignore_eos,
    )
