"""The times of words in the audio of an utterance, as the engine reports them or as an estimate. Pure.

If the engine follows the text (`follow`), its reports say when a word begins. Otherwise a word's duration is estimated
from its letters, with a pause after punctuation. The rate is known once the audio of a segment is complete; before
that, the rate of earlier speech is used. In both cases sound and silence are measured, to find when the first word
begins and when a word ends before a pause. Reported times stay; corrections go into later words.

A model that loses its text stands still in it and may then leap over many words at once. So after some seconds of
sound at one place its words are estimated, and words of a leap are spread out. Such marks say that they are estimates.
"""

import itertools
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sonorant.service.audio.pcm import Samples
from sonorant.service.text.checks import WIDE, has_sign, is_speakable, is_wide
from sonorant.service.text.segmenter import Segmenter
from sonorant.service.utterance.part import ReachedMs, TimedSegment
from sonorant.tts.v1 import synthesis_pb2

DEFAULT_MS_PER_UNIT = 61.0  # until a segment was heard; linden and wren take 46
MIN_UNITS = 20  # the least text from which the rate is learned
# Share of the estimated duration, without the word's first letter and the gap, that is reported for a word whose end is
# not known yet. No later word begins before it, and short words are often much shorter than their letters say.
LEAST_LASTS = 0.6
LEAST_OF_A_LEAP = 0.25  # share of it that a word lasts at least, even if the engine reports all of a sentence at once
STANDSTILL_MS = 3000  # sound after a word's estimated duration from which on the next words are estimated
UNMEASURED_CHUNKS = 8  # of audio that may wait to be measured until somebody asks
UNREAD_CHARS = 256  # of text that may wait to be divided into words until somebody asks; this takes some 0.2 ms
# So many units in less than so much time each were leapt over. Of 906 utterances of the included voices one had less
# than 19 ms each: 7, and a recognizer missed the two words there, too.
LEAP_UNITS, LEAP_MS_PER_UNIT = 12, 10.0
MAX_LEAP_UNITS = 24  # of a word: a number of many digits may be said in two words
REPORT_MS = 200  # a word that begins later than reported by more than this, two frames and a bit, is an estimate


_WORD = re.compile(rf"[{WIDE}]|[^\s{WIDE}]+")
_LONG = re.compile(rf"[\d{WIDE}$€£&+=@#%°]")  # a digit is a word, and so is a sign
_PAUSES = frozenset(",;:.!?…，。；：！？、")


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word and when it is heard. Offsets are code points of the raw text; times are of the audio as it is sent."""

    text: str
    start: int
    end: int
    start_ms: int
    end_ms: int
    estimated: bool = True  # whether its beginning is an estimate

    def to_proto(self) -> synthesis_pb2.Mark:
        return synthesis_pb2.Mark(
            text=self.text,
            text_start=self.start,
            text_end=self.end,
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            estimated=self.estimated,
        )


def units(word: str) -> int:
    """Return a word's estimated duration in units: one per letter, with the gap after it."""
    num_long = len(_LONG.findall(word))
    return 1 + sum(map(str.isalnum, word)) + 3 * num_long + (4 if word[-1] in _PAUSES else 0)


def skipped(text: str, reached_ms: ReachedMs, is_given: Callable[[str], bool]) -> list[str]:
    """Return the words of a segment, as it is spoken, that its speech passed over by the engine's report: those that
    it did not reach, now that it is over, and those over which it leapt. `is_given`: whether the model has a word."""
    words = [match for match in _WORD.finditer(text) if is_speakable(match[0]) and is_given(match[0])]
    begins_ms = list[float]()
    for word in words:
        if (begin_ms := reached_ms(word.start())) is None:
            break
        begins_ms.append(begin_ms)
    passed = set(range(len(begins_ms), len(words)))
    ends_units = list(itertools.accumulate((min(units(word[0]), MAX_LEAP_UNITS) for word in words), initial=0))
    for first, begin_ms in enumerate(begins_ms):
        after = bisect_left(ends_units, ends_units[first] + LEAP_UNITS)
        most_ms = LEAP_MS_PER_UNIT * (ends_units[min(after, len(words))] - ends_units[first])
        if after < len(begins_ms) and begins_ms[after] - begin_ms < most_ms:
            passed |= set(range(first, after))
    return [words[number][0] for number in sorted(passed)]


class WordTimes:
    """Relates text and audio. Each is pushed in order, divided into the same parts."""

    def __init__(
        self,
        rate_hz: int,
        speed: float,
        segmenter: Segmenter,
        ms_per_unit: float = DEFAULT_MS_PER_UNIT,
    ) -> None:
        """`rate_hz`: of the pushed samples; `speed` is applied to them later. `segmenter`: knows how the text is
        written and spoken."""
        self.ms_per_unit = ms_per_unit
        self._rate_hz = rate_hz
        self._speed = speed
        self.segmenter = segmenter
        self._num_chars = 0
        # Text is added to the last one; the words of the first are being reported.
        self._parts = deque([TimedSegment(speed)])
        # All times here are of the audio as it is sent.
        self._start_ms = 0.0  # of the first part
        self._at_ms = 0.0  # the earliest time at which its next word can begin
        self._reported_ms = 0.0  # all up to here was reported: no later word may begin before
        self._open: tuple[TimedSegment, int, float] | None = None  # the last word, if its end was not known
        self._moved_ms = 0.0  # when the last word that the engine reported is usually over
        self._ends_ms = [0.0]  # when each reported word ends, and ...
        self._text_ends = [0]  # ... its end in the text
        # Of words that another session told: their ends in the written text, and when they are over, as sent.
        self._told_before: dict[int, int] = {}
        self._units_before = 0  # of these words, but for the first, and ...
        self._first_before_ms = 0.0  # ... when that one is over

    def resume(self, word_ends: Iterable[tuple[int, int]]) -> None:
        """Take over words that another session told: where each ends in the text, and when it is over in ms of the
        audio as sent."""
        self._told_before = dict(word_ends)

    def push_text(self, text: str, speed: float | None = None) -> None:
        """Add text. `speed`: of this part, if it is not the utterance's."""
        part = self._parts[-1]
        part.speed = self._speed if speed is None else speed
        if len(part.unread) >= UNREAD_CHARS:
            self._read(part)
        self._num_chars += len(text)
        part.unread += text

    def end_text(self) -> None:
        """End the text of this part. Text pushed next belongs to another one."""
        self._parts[-1].text_end = at = self._num_chars
        self._parts.append(TimedSegment(self._speed, at, self.segmenter.respeller.spoken_of(at), read_end=at))

    def revise_text(self, start: int, kept_end: int) -> None:
        """Drop the text of the part that begins at `start`, and all parts after it; the new text will be as the old one
        up to `kept_end`. Reported words that end later are to be reported again, as they have become."""
        while len(self._parts) > 1 and self._parts[-1].start > start:
            self._parts.pop()
        part = self._parts[-1]
        part.words.clear()
        part.unread, part.read_end = "", start
        part.units = part.units_left = 0
        part.unfinished, part.text_end, part.audio_ended = "", None, False
        self._num_chars = start
        if self._text_ends[-1] > kept_end:
            while self._text_ends[-1] > kept_end:
                self._text_ends.pop()
                self._ends_ms.pop()
            self._open = None
            self._at_ms = max(self._start_ms, self._ends_ms[-1])
        written = self.segmenter.reading.written_end(start)
        self._told_before = {end: ends_ms for end, ends_ms in self._told_before.items() if end <= written}

    def follow(self, reached_ms: ReachedMs | None) -> None:
        """Use the engine's reports for the part whose audio comes now; None: there are none."""
        self._sounding().reached_ms = reached_ms

    def push_audio(self, samples: Samples) -> None:
        part = self._sounding()
        if part.onset_ms is None or part.reached_ms is not None:
            part.unmeasured.append(samples)
        part.audio_ms += len(samples) * 1000 / self._rate_hz
        if len(part.unmeasured) >= UNMEASURED_CHUNKS:
            part.measure(self._rate_hz)

    def skip_audio(self, num_samples: int) -> None:
        """Skip audio that another session sent."""
        part = self._sounding()
        part.measure(self._rate_hz)
        part.onset_ms = part.onset_ms or 0.0
        part.audio_ms += num_samples * 1000 / self._rate_hz

    def told_words(self) -> tuple[tuple[int, float], ...]:
        """Return what another session told of the part whose audio comes now: for each word the first character after
        it, in the part's spoken text, and when the word is over in the part's own time. Where in its last word the
        speech is, or in the pause after it, marks do not tell. So that word is left out: speech that is taken to be
        earlier in its text than it is will be found again at once, and speech that is taken to be later never."""
        part = self._sounding()
        self._read(part)
        before = itertools.takewhile(lambda each: each is not part, self._parts)
        begin_ms = self._start_ms + sum(each.audio_ms / each.speed for each in before)
        ends = [end for end in self._text_ends if end > part.start]
        ends += [start + len(word) for start, word, _ in part.words]
        told = [
            (self.segmenter.respeller.spoken_of(end) - part.spoken_start, (ends_ms - begin_ms) * part.speed)
            for end in ends
            if (ends_ms := self._told_before.get(self.segmenter.reading.written_end(end))) is not None
        ]
        return ((0, 0.0), *told[:-1]) if told else ()

    def take_back_audio(self, num_samples: int, *, was_ended: bool) -> None:
        """Take back the last audio, which nobody has heard. Other audio will come in its place."""
        part = next(part for part in reversed(self._parts) if part.audio_ended) if was_ended else self._sounding()
        part.measure(self._rate_hz)
        part.audio_ended = False
        part.audio_ms -= num_samples * 1000 / self._rate_hz
        if part.onset_ms is not None and part.onset_ms >= part.audio_ms:
            part.onset_ms = None
        del part.loud_ms[bisect_right(part.loud_ms, part.audio_ms) :]

    def end_audio(self) -> None:
        """End the audio of this part. Audio pushed next belongs to another one."""
        part = self._sounding()
        part.measure(self._rate_hz)
        part.audio_ended = True
        part.onset_ms = part.onset_ms or 0.0
        self._read(part)
        if part.units >= MIN_UNITS:
            self.ms_per_unit = (part.speech_end_ms() - part.onset_ms) / part.units

    def take_due(self, until_ms: float) -> list[TimedWord]:
        """Return the words that begin before `until_ms` and were not reported yet."""
        self._parts[0].measure(self._rate_hz)
        self._close()
        words: list[TimedWord] = []
        while True:
            part = self._parts[0]
            self._read(part)
            part.measure(self._rate_hz)
            end_ms = self._sent_ms(part, part.audio_ms)
            is_over = part.audio_ended and part.text_end is not None and until_ms >= end_ms
            if part.onset_ms is not None:
                self._at_ms = max(self._at_ms, self._sent_ms(part, part.onset_ms))
                while part.words and ((begins := self._begins(part)) is not None or is_over):
                    if not is_over and begins is not None and begins[0] >= until_ms:
                        break
                    words.append(self._next_word(part, *(begins or (self._at_ms, None))))
                if not part.words and not is_over:  # words that come later cannot begin earlier
                    self._at_ms = max(self._at_ms, until_ms)
            if not is_over:
                self._reported_ms = max(self._reported_ms, until_ms)
                return words
            self._leave(part, end_ms)

    def _leave(self, part: TimedSegment, end_ms: float) -> None:
        """Go on to the next part, as all words of the first one are reported, and its audio ends at `end_ms`."""
        assert part.text_end is not None, "it is over"
        for index in range(len(self._ends_ms) - 1, -1, -1):
            if self._ends_ms[index] <= end_ms:
                break
            self._ends_ms[index] = end_ms  # the word was estimated too long
        self._reported(end_ms, part.text_end)
        self._parts.popleft()
        self._start_ms = end_ms
        self._at_ms = max(self._at_ms, end_ms)  # reported times stay

    def position(self, heard_ms: float) -> int:
        """Return how far the text was heard, in whole words."""
        self.take_due(heard_ms)
        told = self.segmenter.reading.written_end(self._text_ends[bisect_right(self._ends_ms, heard_ms) - 1])
        # The text of these words may not have its turn yet.
        before = (end for end, ends_ms in self._told_before.items() if ends_ms <= heard_ms)
        return max(told, *(end for end in before if end <= self.segmenter.num_chars), 0)

    def _sent_ms(self, part: TimedSegment, own_ms: float) -> float:
        """Return when in the audio as it is sent something is that has a time of the first part's own."""
        return self._start_ms + own_ms / part.speed

    def _own_ms(self, part: TimedSegment, sent_ms: float) -> float:
        return (sent_ms - self._start_ms) * part.speed

    def _sounding(self) -> TimedSegment:
        return next(part for part in self._parts if not part.audio_ended)

    @property
    def usual_ms(self) -> float:
        """How long the text so far of the part whose audio comes now usually takes."""
        part = self._sounding()
        self._read(part)
        return part.units * self.ms_per_unit

    def _begins(self, part: TimedSegment) -> tuple[float, float | None] | None:
        """Return when the part's next word begins, and how late that is by the engine's report; None if not known."""
        if self._ended_before_ms(part) is not None:
            return self._ends_ms[-1], None
        earliest_ms = max(self._at_ms, self._reported_ms)
        if part.reached_ms is None or not part.has_told:  # the first word begins with the first sound
            # That sound may be in audio that went out before it was measured.
            return earliest_ms, None if part.reached_ms is None else 0.0
        reached_ms = part.reached_ms(self.segmenter.respeller.spoken_of(part.words[0][0]) - part.spoken_start)
        if reached_ms is None:
            stands_still = part.sound_ms(self._own_ms(part, self._moved_ms)) >= STANDSTILL_MS
            return (earliest_ms, None) if stands_still else None
        begins_ms = max(earliest_ms, self._sent_ms(part, reached_ms))
        return begins_ms, self._own_ms(part, begins_ms) - reached_ms

    def _next_word(self, part: TimedSegment, begins_ms: float, late_ms: float | None) -> TimedWord:
        """Take the part's next word. `late_ms`: how late its beginning is by the engine's report, if there is one."""
        before_ms = self._ended_before_ms(part)
        start, text, num_units = part.words.popleft()
        lasts_ms = num_units * self.ms_per_unit / part.speed
        if part.audio_ended and part.text_end is not None:
            speech_end_ms = self._sent_ms(part, part.speech_end_ms())
            if begins_ms >= speech_end_ms:
                speech_end_ms = max(begins_ms, self._sent_ms(part, part.audio_ms))
            lasts_ms = (speech_end_ms - begins_ms) * num_units / part.units_left
        ends_ms = begins_ms + max(lasts_ms, 1.0)  # no two begin in the same millisecond
        self._open = None
        if before_ms is not None:
            ends_ms = max(before_ms, begins_ms + 1.0)
            self._learn_rate(ends_ms, num_units, part.speed)
        elif late_ms is not None:
            self._moved_ms = begins_ms + lasts_ms
            spoken_end = self.segmenter.respeller.spoken_of(start + len(text)) - part.spoken_start
            known_ms = self._ends_known_ms(part, spoken_end, begins_ms)
            if known_ms is None:
                ends_ms = begins_ms + max(LEAST_LASTS * lasts_ms * (num_units - 2) / num_units, 1.0)
                self._open = part, spoken_end, begins_ms
            else:
                ends_ms = max(known_ms, begins_ms + max(LEAST_OF_A_LEAP * lasts_ms, 1.0))
        part.has_told = True
        part.units_left -= num_units
        self._at_ms = ends_ms
        self._reported(ends_ms, start + len(text))
        begin, end = self.segmenter.reading.written_begin(start), self.segmenter.reading.written_end(start + len(text))
        estimated = late_ms is None or late_ms > REPORT_MS
        return TimedWord(text, begin, end, round(begins_ms), round(ends_ms), estimated)

    def _ended_before_ms(self, part: TimedSegment) -> float | None:
        """Return when the next word is over if another session told that."""
        if not self._told_before:
            return None
        start, text, _ = part.words[0]
        return self._told_before.get(self.segmenter.reading.written_end(start + len(text)))

    def _learn_rate(self, ends_ms: float, num_units: int, speed: float) -> None:
        """Learn from a word that another session told how long those after it take."""
        if self._first_before_ms:
            self._units_before += num_units
        else:
            self._first_before_ms = ends_ms
        if self._units_before >= MIN_UNITS:
            ms_per_unit = (ends_ms - self._first_before_ms) * speed / self._units_before
            self.ms_per_unit = min(max(ms_per_unit, DEFAULT_MS_PER_UNIT / 4), DEFAULT_MS_PER_UNIT * 4)

    def _ends_known_ms(self, part: TimedSegment, spoken_end: int, begins_ms: float) -> float | None:
        """Return when a word ends: where the next one begins, or where the sound ends if a pause comes first."""
        assert part.reached_ms is not None
        reached_ms = part.reached_ms(spoken_end)
        if reached_ms is None and part.audio_ended:
            reached_ms = part.audio_ms
        if reached_ms is None:
            return None
        sound_end_ms = part.sound_end_ms(self._own_ms(part, begins_ms), reached_ms)
        return max(begins_ms, self._sent_ms(part, sound_end_ms))

    def _close(self) -> None:
        """Correct the end of the last reported word once it is known, so that it counts as heard at the right time."""
        if self._open is None or self._open[0] is not self._parts[0]:
            return
        known_ms = self._ends_known_ms(*self._open)
        if known_ms is not None:
            self._open = None
            self._ends_ms[-1] = max(known_ms, self._ends_ms[-2])

    def _read(self, part: TimedSegment) -> None:
        """Divide all text of the part so far into words."""
        start = part.read_end - len(part.unfinished)
        text = part.unfinished + part.unread
        part.unfinished = part.unread = ""
        part.read_end = start + len(text)
        for match in _WORD.finditer(text):
            if match.end() == len(text) and part.text_end is None and not is_wide(match[0]):
                part.unfinished = match[0]
            else:
                self._add(part, start + match.start(), match[0])

    def _add(self, part: TimedSegment, start: int, word: str) -> None:
        spoken = self.segmenter.lexicon.respell(word)
        if start >= self._text_ends[-1] and (is_speakable(spoken) or has_sign(spoken)):
            num_units = units(spoken)
            part.words.append((start, word, num_units))
            part.units += num_units
            part.units_left += num_units

    def _reported(self, end_ms: float, text_end: int) -> None:
        self._ends_ms.append(max(end_ms, self._ends_ms[-1]))
        self._text_ends.append(max(text_end, self._text_ends[-1]))
