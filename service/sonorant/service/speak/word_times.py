"""Where in its text an utterance is at any moment of its audio: an estimate, better the more is known. Pure.

A word is taken to last as long as its letters, and a pause to follow punctuation, at a rate that is known for certain
once the audio of a segment is complete, and before that taken from what was spoken earlier. Silence before the first
word is measured. What was told once stays; corrections spread over the words to come.
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sonorant.service.audio.pcm import Samples
from sonorant.service.text.checks import WIDE, is_wide
from sonorant.tts.v1 import synthesis_pb2

DEFAULT_MS_PER_UNIT = 61.0  # of the built-in voice
SILENCE_AFTER_MS = 200.0  # usual at the end of a segment
LOUD = 400.0  # root mean square of what is no silence any more
BLOCK_MS = 10
MIN_UNITS = 20  # that a rate can be learned from

_WORD = re.compile(rf"[{WIDE}]|[^\s{WIDE}]+")
_LONG = re.compile(rf"[\d{WIDE}]")  # a digit is a word
_PAUSES = frozenset(",;:.!?…，。；：！？、")


@dataclass(frozen=True, slots=True)
class Word:
    """When a word is heard; offsets are code points of the raw text, times are of the audio as it is sent."""

    text: str
    start: int
    end: int
    start_ms: int
    end_ms: int

    def to_proto(self) -> synthesis_pb2.Mark:
        return synthesis_pb2.Mark(
            text=self.text,
            text_start=self.start,
            text_end=self.end,
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            estimated=True,
        )


def units(word: str) -> int:
    """How long a word takes: as many letters, with the gap after it."""
    num_long = len(_LONG.findall(word))
    return 1 + sum(map(str.isalnum, word)) + 3 * num_long + (4 if word[-1] in _PAUSES else 0)


@dataclass(slots=True, eq=False)
class _Part:
    """A segment: its words that were not told yet, and what is known of its audio."""

    start: int = 0  # offset of its text
    words: deque[tuple[int, str, int]] = field(default_factory=deque)  # with their offsets before, their units after
    units_left: int = 0  # in these
    units: int = 0
    unfinished: str = ""  # a word of which more may come
    text_end: int | None = None  # its offset, once it is known
    audio_ms: float = 0.0
    audio_ended: bool = False
    onset_ms: float | None = None  # of the first sound

    def speech_end_ms(self) -> float:
        """Only for audio that has ended."""
        onset_ms = self.onset_ms or 0.0
        return self.audio_ms - min(SILENCE_AFTER_MS, (self.audio_ms - onset_ms) / 3)


class WordTimes:
    """Text and audio come from two sides, each in its order and by the same parts."""

    def __init__(
        self,
        rate_hz: int,
        speed: float,
        ms_per_unit: float = DEFAULT_MS_PER_UNIT,
        respell: Callable[[str], str] = str,
    ) -> None:
        """`rate_hz` of the samples that are pushed; `speed` comes after that. `respell`: what is said for a word."""
        self.ms_per_unit = ms_per_unit
        self._rate_hz = rate_hz
        self._speed = speed
        self._respell = respell
        self._num_chars = 0
        self._parts = deque([_Part()])  # text is added to the last, the first is being told
        # Times in here are before `speed`.
        self._start_ms = 0.0  # of the first part
        self._at_ms = 0.0  # where its next word begins, at the earliest
        self._ends_ms = [0.0]  # of what was told, ...
        self._text_ends = [0]  # ... and how far the text goes there

    def push_text(self, text: str) -> None:
        part = self._parts[-1]
        start = self._num_chars - len(part.unfinished)
        self._num_chars += len(text)
        text, part.unfinished = part.unfinished + text, ""
        for match in _WORD.finditer(text):
            if match.end() == len(text) and not is_wide(match[0]):
                part.unfinished = match[0]
            else:
                self._add(part, start + match.start(), match[0])

    def end_text(self) -> None:
        """Of this part; what is pushed next belongs to another one."""
        part = self._parts[-1]
        if part.unfinished:
            self._add(part, self._num_chars - len(part.unfinished), part.unfinished)
            part.unfinished = ""
        part.text_end = self._num_chars
        self._parts.append(_Part(self._num_chars))

    def revise_text(self, start: int) -> None:
        """The part that begins there has another text, which comes next, and none follows it. What was told stays."""
        while len(self._parts) > 1 and self._parts[-1].start > start:
            self._parts.pop()
        part = self._parts[-1]
        part.words.clear()
        part.units = part.units_left = 0
        part.unfinished, part.text_end, part.audio_ended = "", None, False
        self._num_chars = start

    def push_audio(self, samples: Samples) -> None:
        part = self._sounding()
        if part.onset_ms is None:
            onset_ms = _onset_ms(samples, self._rate_hz)
            part.onset_ms = None if onset_ms is None else part.audio_ms + onset_ms
        part.audio_ms += len(samples) * 1000 / self._rate_hz

    def skip_audio(self, num_samples: int) -> None:
        """Somebody else spoke it."""
        part = self._sounding()
        part.onset_ms = part.onset_ms or 0.0
        part.audio_ms += num_samples * 1000 / self._rate_hz

    def take_back_audio(self, num_samples: int, *, was_ended: bool) -> None:
        """The last of it, which nobody has heard; more will come in its place."""
        part = next(part for part in reversed(self._parts) if part.audio_ended) if was_ended else self._sounding()
        part.audio_ended = False
        part.audio_ms -= num_samples * 1000 / self._rate_hz
        if part.onset_ms is not None and part.onset_ms >= part.audio_ms:
            part.onset_ms = None

    def end_audio(self) -> None:
        """All of this part was spoken; what is pushed next belongs to another one."""
        part = self._sounding()
        part.audio_ended = True
        part.onset_ms = part.onset_ms or 0.0
        if part.units >= MIN_UNITS:
            self.ms_per_unit = (part.speech_end_ms() - part.onset_ms) / part.units

    def tell(self, until_ms: float) -> list[Word]:
        """The words that begin before a moment of the audio and were not told yet."""
        until_ms *= self._speed
        words: list[Word] = []
        while True:
            part = self._parts[0]
            end_ms = self._start_ms + part.audio_ms
            is_over = part.audio_ended and part.text_end is not None and until_ms >= end_ms
            if part.onset_ms is not None:
                self._at_ms = max(self._at_ms, self._start_ms + part.onset_ms)
                while part.words and (self._at_ms < until_ms or is_over):
                    words.append(self._next_word(part))
                if not part.words and not is_over:  # words that come now are late
                    self._at_ms = max(self._at_ms, until_ms)
            if not is_over:
                return words
            assert part.text_end is not None, "it is over"
            for index in range(len(self._ends_ms) - 1, -1, -1):
                if self._ends_ms[index] <= end_ms:
                    break
                self._ends_ms[index] = end_ms  # words taken for longer than they were
            self._told(end_ms, part.text_end)
            self._parts.popleft()
            self._start_ms = end_ms
            self._at_ms = max(self._at_ms, end_ms)  # what was told stays

    def position(self, heard_ms: float) -> int:
        """How far the text goes that was heard, in whole words."""
        self.tell(heard_ms)
        return self._text_ends[bisect_right(self._ends_ms, heard_ms * self._speed) - 1]

    def _sounding(self) -> _Part:
        return next(part for part in self._parts if not part.audio_ended)

    def _next_word(self, part: _Part) -> Word:
        start, text, num_units = part.words.popleft()
        begins_ms, ends_ms = self._at_ms, self._at_ms + num_units * self.ms_per_unit
        if part.audio_ended and part.text_end is not None:
            speech_end_ms = max(begins_ms, self._start_ms + part.speech_end_ms())
            ends_ms = begins_ms + (speech_end_ms - begins_ms) * num_units / part.units_left
        part.units_left -= num_units
        self._at_ms = ends_ms
        self._told(ends_ms, start + len(text))
        return Word(text, start, start + len(text), round(begins_ms / self._speed), round(ends_ms / self._speed))

    def _add(self, part: _Part, start: int, word: str) -> None:
        spoken = self._respell(word)
        if start >= self._text_ends[-1] and any(map(str.isalnum, spoken)):
            num_units = units(spoken)
            part.words.append((start, word, num_units))
            part.units += num_units
            part.units_left += num_units

    def _told(self, end_ms: float, text_end: int) -> None:
        self._ends_ms.append(max(end_ms, self._ends_ms[-1]))
        self._text_ends.append(text_end)


def _onset_ms(samples: Samples, rate_hz: int) -> float | None:
    size = rate_hz * BLOCK_MS // 1000
    blocks = samples[: len(samples) // size * size].reshape(-1, size).astype(np.float32)
    is_loud = np.einsum("ij,ij->i", blocks, blocks) > LOUD**2 * size
    return float(is_loud.argmax() * BLOCK_MS) if is_loud.any() else None
