"""One utterance: takes its text in and sends its audio out. Knows no RPC and no other utterance."""

import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from google.rpc.status_pb2 import Status

from sonorant.engine import EngineOverloaded, EngineUnavailable, FinishReason
from sonorant.service.admission.reservations import Reservation
from sonorant.service.errors import InvalidField
from sonorant.service.pacing.pacer import Pacer, Playout
from sonorant.service.text.checks import check_text, slices
from sonorant.service.text.formats import PLAIN
from sonorant.service.text.revision import place
from sonorant.service.text.segmenter import EndSegment, Event, Segmenter, Text
from sonorant.service.utterance.allowance import Allowance
from sonorant.service.utterance.delivery import Delivery, Send
from sonorant.service.utterance.receipts import FreeText
from sonorant.service.utterance.requests import UtteranceSpec, Warned, left_out, passed_over
from sonorant.service.utterance.resumption import CHARS_PER_S, Resumption
from sonorant.service.utterance.segments import Segment, Segments
from sonorant.service.utterance.speech import Speech
from sonorant.service.utterance.statistics import Statistics
from sonorant.service.utterance.word_times import DEFAULT_MS_PER_UNIT, WordTimes
from sonorant.tts.v1 import speak_pb2, synthesis_pb2

MAX_LOST_WORDS = 64  # of a warning that names them
MAX_IGNORED_CHARS = 200  # of the warning that names markup
PREFILL_FRAMES = 4  # credit of a segment whose turn has not come: enough to continue without a gap

_REASONS = {
    FinishReason.COMPLETED: synthesis_pb2.FINISH_REASON_COMPLETED,
    FinishReason.MAX_FRAMES: synthesis_pb2.FINISH_REASON_MAX_AUDIO,
    FinishReason.RUNAWAY: synthesis_pb2.FINISH_REASON_RUNAWAY,
    FinishReason.CANCELLED: synthesis_pb2.FINISH_REASON_CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Beginning:
    """How an utterance begins, beside what is wanted of it."""

    playout: Playout  # the session's
    max_lead_ms: int = 0  # 0: no limit
    ms_per_unit: float = DEFAULT_MS_PER_UNIT  # see `WordTimes`
    resumption: Resumption | None = None  # set if another session began it
    whole: bool = False  # nobody hears anything before the end
    follows: bool = False  # the session had utterances before this one
    arrived_s: float | None = None  # when the call arrived, if the text came with it


def seeded(spec: UtteranceSpec) -> UtteranceSpec:
    """Return the spec of one utterance, with its own seed unless the caller gave one."""
    if spec.seed_given:
        return spec
    sampling = replace(spec.params.sampling, seed=secrets.randbits(32))
    return replace(spec, params=replace(spec.params, sampling=sampling))


class Utterance:
    """The text side never blocks. The audio side is `speak`, run by one task. Exceptions end the utterance.

    Text is first accepted (checked, and charged to the caller), then pushed in small pieces.
    """

    def __init__(
        self,
        utterance_id: str,
        spec: UtteranceSpec,
        allowance: Allowance,
        beginning: Beginning,
    ) -> None:
        spec, resumption = seeded(spec), beginning.resumption
        self.id = utterance_id
        self.spec = spec
        self.pacer = Pacer(beginning.playout, beginning.max_lead_ms, spec.audio, spec.info, whole=beginning.whole)
        self.segmenter = Segmenter(spec.policy, spec.lexicon, spec.info.max_segment_chars, spec.written_as)
        self.word_times = WordTimes(spec.audio.native_rate_hz, spec.audio.speed, self.segmenter, beginning.ms_per_unit)
        self.statistics = Statistics(
            utterance_id, spec, self.word_times, beginning.playout, arrived_s=beginning.arrived_s
        )
        if resumption is not None:
            self.word_times.resume(resumption.word_ends)
            self.statistics.received_before_ms = resumption.received_ms(spec.audio.sample_rate_hz)
        self._resumption = resumption
        self._charge = allowance.charge
        self._max_chars = allowance.max_text_chars
        # Text that a receipt has paid for
        self._free = None if resumption is None or resumption.heard is None else FreeText(resumption.heard)
        self._longer_chars = 0  # how much longer the spoken text is than the written one
        self._charged_longer_chars = 0
        # Offsets, without markup, up to which text was committed because no more came for a while
        self._commits: list[int] = []
        reservation = Reservation(
            allowance.reservations,
            spec.params.checkpoint,
            resumed=resumption is not None,
            follows=beginning.follows,
            is_background=spec.scheduling.is_background,
        )
        self.segments = Segments(spec, reservation, allowance.phrases)
        self._speech = Speech(spec, self.segments, self.word_times, self.statistics, resumption, whole=beginning.whole)
        self._delivery = Delivery(self._speech, self.pacer, allowance.part)

    def accept(self, text: str) -> None:
        """Check and charge a text that is to be pushed. Raises InvalidField or LimitReached."""
        check_text(text, self._max_chars, "text", self.segmenter.num_chars)
        if self._charge is not None:
            self._pay(len(text) - (0 if self._free is None else self._free.take(text)))

    def push(self, text: str) -> None:
        """Add text that was accepted. Raises InvalidSynthesis or LimitReached."""
        self.segments.written.append(text)
        if not self.statistics.first_text_s and self.spec.written_as == PLAIN:
            self.statistics.text(text)  # else, of markup, what is said counts, once it is committed
        begin = 0
        if self._resumption is not None:  # commit where the session that began the utterance did so during a pause
            start = self.segmenter.num_chars
            for at in self._resumption.committed_chars:
                if begin < at - start <= len(text):
                    self._commit(self.segmenter.push(text[begin : at - start]))
                    self.commit_tail()
                    begin = at - start
        self._commit(self.segmenter.push(text[begin:]))

    def revise(self, from_char: int, text: str) -> tuple[speak_pb2.Revised, str]:
        """Replace the text from `from_char` on. Return the message for the client, and the text that is left to push.

        Raises InvalidField, LimitReached or InvalidSynthesis.
        """
        written = "".join(self.segments.written)
        if from_char > len(written):
            raise InvalidField("revise.from_char", f"{from_char} is over the {len(written)} characters that came")
        heard = self._speech.heard_to(self.segmenter.reading.said(written))
        at = place(written, from_char, self.segmenter.reading.written_end(heard), text)
        text = text[at.text_char :]
        check_text(text, self._max_chars, "revise.text", at.from_char)
        before = written[: at.from_char]
        reading = self.segmenter.reading.again(before)
        said = reading.said(before)
        segment = self.segments.at(len(said))
        first = next(slices(text))
        self.segmenter.restart(segment.start_char, len(before), reading, segment.manner)
        events = self._again(segment, said[segment.start_char :]) + self.segmenter.push(first)
        num_dropped = self._delivery.revise(segment, _spoken(events))
        self._longer_chars -= sum(each.num_longer for each in self.segments if each.number >= segment.number)
        ends = self.segments.revise(segment)
        self.word_times.revise_text(segment.start_char, len(said))
        self.segments.written = [before, first]
        lost_chars = math.ceil(num_dropped * CHARS_PER_S / self.spec.info.frame_rate_hz)
        replaced_chars = len(written) - at.from_char
        self._pay(len(text) + min(lost_chars, replaced_chars) - replaced_chars)
        if not self.statistics.first_text_s and self.spec.written_as == PLAIN:
            self.statistics.text(first)
        self._commit(events)
        flush_ids = [end.flush_id for end in ends if end.flush_id is not None]
        revised = speak_pb2.Revised(from_char=at.from_char, text_char=at.text_char, flush_ids=flush_ids)
        return revised, text[len(first) :]

    def flush(self, flush_id: int, pause_ms: int = 0, *, carries_on: bool = False) -> None:
        """End the segment here. Raises LimitReached, InvalidField or InvalidSynthesis."""
        self.segments.check_flush()
        self._commit(self.segmenter.flush(flush_id, pause_ms, carries_on=carries_on))

    def end(self) -> None:
        """End the text. Idempotent. Raises InvalidSynthesis or LimitReached."""
        self._commit(self.segmenter.end())

    def commit_tail(self) -> None:
        """Speak the text to its end, as none has come for a while. Raises InvalidSynthesis or LimitReached."""
        events = self.segmenter.commit_tail()
        self._commits.append(self.segmenter.num_said)
        self._commit(events)

    def start(self) -> None:
        """Open the stream of the first text, before `speak` looks for it. Raises InvalidSynthesis."""
        segment = self.segments.current
        is_new = self._resumption is None and segment.stream is None and segment is not self._speech.segment
        if is_new and segment.speakable and not self.segments.may_be_phrase(segment):
            with suppress(EngineOverloaded, EngineUnavailable):  # it is tried again in its turn
                self.segments.open(segment, self.pacer.ahead_frames())

    def may_prefill(self, *, follows: bool) -> bool:
        """Whether the engine has made all of the segment that is being spoken, and another comes after it, or another
        utterance (`follows`).
        """
        stream = self.segments.current.stream
        return stream is not None and stream.ended and (follows or len(self.segments) > 1)

    def prefill(self) -> bool:
        """Let the engine begin with the next segment once it has made those before. Return whether all is made.

        Raises InvalidSynthesis.
        """
        if self._speech.is_set_back:
            return False
        for segment in self.segments:
            if segment.stream is None and not segment.speakable and segment.end is not None:
                continue  # there is nothing to say in it
            if segment.stream is None and self._may_open_early(segment):
                with suppress(EngineOverloaded, EngineUnavailable):  # it is tried again in its turn
                    self.segments.open(segment, PREFILL_FRAMES)
            if segment.stream is None or not segment.stream.ended:
                return False
        return self.segmenter.ended

    def _may_open_early(self, segment: Segment) -> bool:
        """Whether all is known that the segment's stream depends on, before its turn has come."""
        # Only in its turn is it known how many frames are left, or which frames it continues.
        depends = segment is not self.segments.current and (self.spec.max_frames_given or segment.carries_on)
        return segment.speakable and not depends and not self.segments.may_be_phrase(segment)

    def pass_place_on(self, following: "Utterance", *, is_over: bool = False) -> None:
        """Give the place in the engine to the next utterance, if that has something to say to the same checkpoint, and
        this one does not need it any more: all of it is made, or it `is_over`."""
        is_made = is_over or self._speech.is_all_made
        is_same = following.spec.params.checkpoint == self.spec.params.checkpoint
        if is_made and is_same and following.segments.current.speakable:
            self.segments.reservation.pass_on(following.segments.reservation)

    async def speak(self, send: Send, before_leaving: Callable[[], None] = lambda: None) -> FinishReason:
        """Speak all of it, one segment after another, and return the reason for `done`.

        Raises what `Delivery.speak` raises. `before_leaving`: called before the place in the engine is given up.
        """
        lost_words, skipped_words = list[str](), list[str]()
        try:
            while True:
                segment = self.segments.current
                if (reason := await self._delivery.speak(segment, send)) is not FinishReason.COMPLETED:
                    break
                lost_words += self.spec.info.lost_words(segment.text)
                skipped_words += self._speech.skipped_words()
                del lost_words[MAX_LOST_WORDS:], skipped_words[MAX_LOST_WORDS:]
                assert segment.end is not None, "it is complete"
                if segment.end.last:
                    break
                self.segments.finish_current(self._speech.frames.codes(self._speech.frames.num_frames))
            await self._delivery.warn(send, *self._warnings(reason, lost_words, skipped_words))
            return reason
        finally:
            self._speech.close()
            before_leaving()
            self.abort()

    def _warnings(self, reason: FinishReason, lost_words: Sequence[str], skipped_words: Sequence[str]) -> list[Warned]:
        """Return what the client is warned of at the end."""
        warnings: list[Warned] = []
        if reason is FinishReason.COMPLETED and not self.statistics.num_frames:
            num_chars = self.segmenter.num_chars
            known = " that the checkpoint knows" if self.statistics.first_text_s else ""
            what = f"no letter or digit{known} in {num_chars} characters" if num_chars else "no text"
            warnings.append(Warned("NO_SPEAKABLE_TEXT", f"nothing was spoken: {what}"))
        elif lost_words:
            warnings.append(left_out(lost_words))
        if skipped_words:
            warnings.append(passed_over(skipped_words))
        if ignored := self.segmenter.reading.ignored:
            what = ", ".join(ignored)[:MAX_IGNORED_CHARS]
            warnings.append(Warned("MARKUP_IGNORED", f"without effect: {what}"))
        return warnings

    def done(self, reason: FinishReason, error: Status | None = None) -> synthesis_pb2.UtteranceDone:
        """Return the last message. With an error, the utterance has failed, and counts as heard what a cancel would."""
        return synthesis_pb2.UtteranceDone(
            reason=_REASONS[reason] if error is None else synthesis_pb2.FINISH_REASON_FAILED,
            stats=self.statistics.to_proto(reason, self.segmenter.num_chars),
            error=error,
            warnings=self._delivery.warnings,
        )

    def abort(self, _call: object = None) -> None:
        """Stop the engine's work at once."""
        self.segments.cancel()

    def _again(self, segment: Segment, text: str) -> list[Event]:
        """Push the beginning of a segment once more, with the commits that were in it, and return its events."""
        start = segment.start_char
        self._commits = [at for at in self._commits if at <= start + len(text)]
        events: list[Event] = []
        begin = 0
        for end in sorted({at - start for at in self._commits if at > start}):
            events += self.segmenter.push_said(text[begin:end]) + self.segmenter.commit_said()
            begin = end
        return events + self.segmenter.push_said(text[begin:])

    def _commit(self, events: Iterable[Event]) -> None:
        if self.spec.lexicon.entries:  # charged as if it had been written out
            self._longer_chars += sum(len(each.spoken) - len(each.written) for each in events if isinstance(each, Text))
            self._pay(self._longer_chars - self._charged_longer_chars)
            self._charged_longer_chars = max(self._longer_chars, self._charged_longer_chars)
        for event in events:
            segment = self.segments.apply(event)
            match event:
                case Text(written, spoken):
                    if not self.statistics.first_text_s:
                        self.statistics.text(spoken)
                    self.word_times.push_text(written, segment.sound.speed)
                case EndSegment():
                    self.word_times.end_text()
            if self._free is not None and isinstance(event, EndSegment) and not event.last:
                begun = self.segments.last
                start_char = self.segmenter.reading.written_end(begun.start_char)
                self._pay(self._free.begin_segment(begun.number, start_char, event.pause_ms))

    def _pay(self, num_chars: int) -> None:
        """Charge characters to the caller, if its text is limited. Raises LimitReached."""
        if num_chars > 0 and self._charge is not None:
            self._charge(num_chars)


def _spoken(events: Sequence[Event]) -> list[str | None]:
    """Return the part of the events for the first segment, in the form of `Segment.spoken`."""
    spoken: list[str | None] = []
    for event in events:
        match event:
            case Text(spoken=text) if text:
                spoken.append(text)
            case EndSegment():
                break
    return spoken
