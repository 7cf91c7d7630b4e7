"""Decides where a text is cut and when it is committed: text goes in, events come out. Pure: no clock, engine or audio.

Committed text is divided into segments. Each segment has its own engine stream and is spoken to its end before the next
one begins. A flush needs this: the model speaks the last words only once it knows that they are the last. A flush ends
a segment, and in SENTENCE mode so does each sentence.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from sonorant.service.errors import InvalidField
from sonorant.service.text.checks import check_characters, check_length
from sonorant.service.text.pronunciations import Lexicon, Respeller
from sonorant.service.text.sentences import Sentences

MAX_PAUSE_MS = 5000


class CommitMode(Enum):
    TOKEN = auto()
    SENTENCE = auto()
    MANUAL = auto()


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """A checked TextPolicy message."""

    mode: CommitMode = CommitMode.TOKEN
    max_buffer_delay_s: float | None = None
    first_chunk_min_chars: int = 0
    language: str = "en"  # for sentences


@dataclass(frozen=True, slots=True)
class Text:
    """More text of the segment: as it was written, and as it is spoken, as far as that is certain now."""

    written: str
    spoken: str


@dataclass(frozen=True, slots=True)
class ReleaseTail:
    """Speak the last word although it could still grow."""


@dataclass(frozen=True, slots=True)
class EndSegment:
    flush_id: int | None = None  # of the flush that ends the segment
    pause_ms: int = 0  # silence after it, as the flush asks
    last: bool = False  # no segment follows
    carries_on: bool = False  # the next segment continues in the same voice state


Event: TypeAlias = Text | ReleaseTail | EndSegment


class Segmenter:
    """Cuts the text of one utterance. Methods that change the text return what is committed by that."""

    def __init__(self, policy: TextPolicy, max_chars: int, lexicon: Lexicon) -> None:
        self.num_chars = 0
        self.ended = False
        self._policy = policy
        self._max_chars = max_chars
        self._lexicon = lexicon
        self._respeller = Respeller(lexicon)
        self._sentences = Sentences(policy.language)
        self._uncommitted = ""
        self._begun = False  # whether something was committed

    def spoken_of(self, offset: int) -> int:
        """Map an offset in the committed text to one in the spoken text."""
        return self._respeller.spoken_of(offset)

    def check(self, text: str) -> None:
        """Raise InvalidField unless the text may be pushed."""
        check_length(self.num_chars + len(text), self._max_chars, "text")
        check_characters(text, "text")

    def check_revision(self, from_char: int, text: str) -> None:
        """Raise InvalidField unless this text may replace the text from `from_char` on."""
        check_length(from_char + len(text), self._max_chars, "revise.text")
        check_characters(text, "revise.text")

    def restart(self, num_chars: int) -> None:
        """Go back to the first `num_chars` of the text, which must be the beginning of a segment."""
        self.num_chars = num_chars
        self._respeller = self._respeller.restarted(num_chars)
        self._sentences = Sentences(self._policy.language)
        self._uncommitted = ""

    def push(self, text: str) -> list[Event]:
        """Add text that was checked."""
        self.num_chars += len(text)
        match self._policy.mode:
            case CommitMode.SENTENCE:
                return self._whole_sentences(text)
            case CommitMode.TOKEN if self._begun:
                return self._text(text)
        self._uncommitted += text
        if self._policy.mode is CommitMode.TOKEN and len(self._uncommitted) >= self._policy.first_chunk_min_chars:
            return self._rest()
        return []

    def flush(self, flush_id: int, pause_ms: int = 0, *, carries_on: bool = False) -> list[Event]:
        """End the segment here. Raises InvalidField."""
        if pause_ms > MAX_PAUSE_MS:
            raise InvalidField("flush.pause_ms", f"{pause_ms} is over {MAX_PAUSE_MS}")
        if pause_ms and carries_on:
            raise InvalidField(
                "flush.carry_on", f"speech that carries on has no pause, but pause_ms is {pause_ms}; leave one out"
            )
        return self._rest() + self._end_segment(EndSegment(flush_id, pause_ms, carries_on=carries_on))

    def end(self) -> list[Event]:
        """End the text. Idempotent."""
        if self.ended:
            return []
        self.ended = True
        return self._rest() + self._end_segment(EndSegment(last=True))

    def commit_tail(self) -> list[Event]:
        """Commit text that waits for more, as none has come for a while."""
        if self.ended or self._policy.mode is CommitMode.MANUAL:
            return []
        rest = self._rest()
        if self._policy.mode is CommitMode.TOKEN:
            return [*rest, Text("", self._respeller.flush()), ReleaseTail()]
        return rest + self._end_segment(EndSegment()) if rest else []

    def _whole_sentences(self, text: str) -> list[Event]:
        events: list[Event] = []
        for sentence in self._sentences.push(text):
            self._uncommitted += sentence
            if self._begun or len(self._uncommitted) >= self._policy.first_chunk_min_chars:
                whole, self._uncommitted = self._uncommitted, ""
                events += self._text(whole) + self._end_segment(EndSegment())
        return events

    def _rest(self) -> list[Event]:
        text, self._uncommitted = self._uncommitted + self._sentences.rest(), ""
        return self._text(text) if text else []

    def _text(self, text: str) -> list[Event]:
        self._begun = True
        return [Text(text, self._respeller.push(text))]

    def _end_segment(self, end: EndSegment) -> list[Event]:
        tail = self._respeller.flush()
        return [Text("", tail), end] if tail else [end]
