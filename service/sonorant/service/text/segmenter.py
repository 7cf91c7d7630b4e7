"""Decides where a text is cut and when it is committed: text goes in, events come out. Pure: no clock, engine or audio.

Committed text is divided into segments. Each segment has its own engine stream and is spoken to its end before the next
one begins. A flush needs this: the model speaks the last words only once it knows that they are the last. A flush ends
a segment; so do a pause after a finished sentence, another manner, and in SENTENCE mode each sentence. A long text
has several, too.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from sonorant.service.errors import InvalidField
from sonorant.service.text.checks import is_wide
from sonorant.service.text.formats import PLAIN, WrittenAs
from sonorant.service.text.markup import NEUTRAL, Manner
from sonorant.service.text.pronunciations import Lexicon, Respeller
from sonorant.service.text.reading import Reading, ToSay
from sonorant.service.text.sentences import Sentences, begins_sentence, ends_sentence, is_complete

MAX_PAUSE_MS = 5000
# How long to wait for more text, if the caller does not say: after a sentence that is complete, where each is a segment
# in any case; after the mark of a sentence; and after other text.
COMPLETE_DELAY_S = 0.1
SENTENCE_DELAY_S = 0.3
WORDS_DELAY_S = 2.0
BUFFER_DELAYS_MS = range(10, 60_001)  # what the caller may say
PARAGRAPH_PAUSE_MS = 300  # after a segment that ends with a paragraph, beside the silence with which the voice ends it
_TAIL_CHARS = 32  # enough to see how a text ends
# Shares of the longest segment: from the first on it may end with a sentence, from the second on with a clause. At the
# whole length it ends with the next word.
_SENTENCE_SHARE = 0.5
_CLAUSE_SHARE = 0.8
_MAX_WORD_CHARS = 64  # a longer word is cut
_SEEN_CHARS = 256  # of the text before a place; enough to tell the end of a sentence from an abbreviation
_PARAGRAPH = re.compile(r"\n\s*\n\s*\Z|\u2029\s*\Z")
_CLAUSE = re.compile(r"[,;:،؛，、；：–—]\s*\Z")
_CLOSING = frozenset("'\"’”»›)]}」』》）.,;:!?…。！？，、；：")


class CommitMode(Enum):
    TOKEN = auto()
    SENTENCE = auto()
    MANUAL = auto()


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """A checked TextPolicy message."""

    mode: CommitMode = CommitMode.TOKEN
    max_buffer_delay_s: float | None = None  # None: the delays above, and no word is cut
    first_chunk_min_chars: int = 0
    language: str = "en"  # for sentences


@dataclass(frozen=True, slots=True)
class Text:
    """More text of the segment: as it was written, without markup, and as it is spoken, as far as that is certain."""

    written: str
    spoken: str
    manner: Manner = NEUTRAL  # of the segment


@dataclass(frozen=True, slots=True)
class EndSegment:
    flush_id: int | None = None  # of the flush that ends the segment
    pause_ms: int = 0  # silence after it, as the flush or the text asks
    last: bool = False  # no segment follows
    carries_on: bool = False  # the next segment continues in the same voice state
    by_length: bool = False  # the text goes on: only its length ends the segment


Event: TypeAlias = Text | EndSegment


class Cutter:
    """Cuts a long text into segments that the model speaks well, at ends of sentences if there are some.

    Each cut depends only on the text of the segment before it and on the character after it, so it is the same however
    the text comes in pieces.
    """

    def __init__(self, code: str, max_chars: int) -> None:
        """`code`: of the language, for ends of sentences."""
        self._code = code
        self._max_chars = max_chars
        self._num_chars = 0  # of the segment
        self._before = ""  # the end of the segment so far

    def restart(self) -> None:
        """Begin another segment."""
        self._num_chars, self._before = 0, ""

    def split(self, text: str) -> list[tuple[str, bool | None]]:
        """Take more text; return it in pieces. The segment ends behind each but the last: then it says whether a
        paragraph ends there, else None. There is at least one piece; the first may be empty."""
        pieces: list[tuple[str, bool | None]] = []
        begin, least = 0, self._max_chars * _SENTENCE_SHARE
        may_end = self._num_chars + len(text) > least
        for index, chars in enumerate(text if may_end else (text,)):
            if may_end and self._num_chars >= least and self._ends_before(chars):
                pieces.append((text[begin:index], _ends_paragraph(self._before)))
                begin = index
                self.restart()
            self._num_chars += len(chars)
            self._before = (self._before + chars)[-_SEEN_CHARS:]
        return [*pieces, (text[begin:], None)]

    def _ends_before(self, char: str) -> bool:
        """Whether the segment ends before this character, which comes next."""
        last = self._before[-1]
        if self._num_chars >= 2 * self._max_chars + _MAX_WORD_CHARS:
            return True  # nothing but blanks, marks or accents
        if char.isspace() or char in _CLOSING or unicodedata.category(char)[0] in "MC":
            return False
        if last.isspace() or is_wide(char):
            if self._ends_sentence(char):
                return True
            if self._num_chars >= self._max_chars * _CLAUSE_SHARE and _CLAUSE.search(self._before):
                return True
            return self._num_chars >= self._max_chars
        return self._num_chars >= self._max_chars + _MAX_WORD_CHARS

    def _ends_sentence(self, char: str) -> bool:
        if _ends_paragraph(self._before):
            return True
        return ends_sentence(self._before) and begins_sentence(self._before, char, self._code)


class Segmenter:
    """Cuts the text of one utterance. Methods that change the text return what is committed by that."""

    def __init__(
        self,
        policy: TextPolicy,
        lexicon: Lexicon,
        max_segment_chars: int,
        written_as: WrittenAs = PLAIN,
    ) -> None:
        """`max_segment_chars`: how much text the checkpoint speaks well in one go."""
        self.num_chars = 0  # as the caller wrote them; all else here is without markup
        self.num_said = 0
        self.reading = Reading(written_as.markup)
        self.ended = False
        self._policy = policy
        self.lexicon = lexicon
        # How soon after a text `commit_delay_s` may be over.
        self.least_delay_s = min(COMPLETE_DELAY_S, policy.max_buffer_delay_s or COMPLETE_DELAY_S)
        self.respeller = Respeller(lexicon)
        self._sentences = Sentences(policy.language) if policy.mode is CommitMode.SENTENCE else None
        self._cutter = Cutter(policy.language, max_segment_chars)
        self._uncommitted = ""
        self._begun = False  # whether something was committed
        self._tail = ""  # the end of the segment's text so far
        self._manner = NEUTRAL  # of the segment
        self._is_blank = True  # whether only whitespace of the segment is committed

    def restart(self, num_said: int, num_chars: int, reading: Reading, manner: Manner) -> None:
        """Go back to the first `num_said` of the text, which must be the beginning of a segment, in its `manner`. What
        follows of the caller's first `num_chars` is pushed by `push_said`; `reading` has read them."""
        self._manner = manner
        self.num_chars = num_chars
        self.num_said = num_said
        self.reading = reading
        self.respeller = self.respeller.restarted(num_said)
        self._sentences = Sentences(self._policy.language) if self._sentences is not None else None
        self._cutter.restart()
        self._uncommitted = self._tail = ""
        self._is_blank = True

    def push(self, text: str) -> list[Event]:
        """Add text that was checked. Raises InvalidField for markup that cannot be read."""
        self.num_chars += len(text)
        return self.push_said(text) if self.reading.is_plain else self._read(self.reading.push(text))

    def push_said(self, text: str) -> list[Event]:
        """Add text without markup."""
        self.num_said += len(text)
        self._tail = (self._tail + text)[-_TAIL_CHARS:]
        if self._sentences is not None:
            return self._whole_sentences(self._sentences.push(text))
        whole = self._uncommitted + text
        is_enough = self._begun or len(whole) >= self._policy.first_chunk_min_chars
        self._uncommitted = "" if (commits := self._policy.mode is CommitMode.TOKEN and is_enough) else whole
        return self._commit(whole) if commits else []

    def flush(self, flush_id: int, pause_ms: int = 0, *, carries_on: bool = False) -> list[Event]:
        """End the segment here. Raises InvalidField."""
        if pause_ms > MAX_PAUSE_MS:
            raise InvalidField("flush.pause_ms", f"{pause_ms} is over {MAX_PAUSE_MS}")
        if pause_ms and carries_on:
            raise InvalidField(
                "flush.carry_on", f"speech that carries on has no pause, but pause_ms is {pause_ms}; leave one out"
            )
        settled = self._read(self.reading.settle())
        return settled + self._rest() + self._end_segment(EndSegment(flush_id, pause_ms, carries_on=carries_on))

    def end(self) -> list[Event]:
        """End the text. Idempotent."""
        if self.ended:
            return []
        self.ended = True
        return self._read(self.reading.settle()) + self._rest() + self._end_segment(EndSegment(last=True))

    @property
    def commit_delay_s(self) -> float | None:
        """How long to wait for more text before `commit_tail`; None: until more comes."""
        waiting = self._waiting if self._waiting.strip() else self.reading.held
        if self.ended or self._policy.mode is CommitMode.MANUAL or not waiting.strip():
            return None
        if self._policy.max_buffer_delay_s is not None:
            return self._policy.max_buffer_delay_s
        if ends_sentence(waiting):
            is_segment = self._policy.mode is CommitMode.SENTENCE and is_complete(waiting, self._policy.language)
            return COMPLETE_DELAY_S if is_segment else SENTENCE_DELAY_S
        return WORDS_DELAY_S if _is_whole(waiting) or _words_before_last(self._held) else None

    def commit_tail(self) -> list[Event]:
        """End the segment, as no text has come for a while: the model speaks its last words only then.

        A last word that may still grow waits for more, unless the caller has set the delay.
        """
        if self.commit_delay_s is None:
            return []
        return self._read(self.reading.settle()) + self.commit_said()

    def commit_said(self) -> list[Event]:
        """Do the same for text without markup."""
        if self.commit_delay_s is None:
            return []
        held, word = self._held, ""
        if self._policy.max_buffer_delay_s is None and not _is_whole(self._waiting):
            whole = _words_before_last(held)
            held, word = whole, held[len(whole) :]
        if self._sentences is not None:
            self._sentences.rest()
        self._uncommitted = word
        return self._commit(held) + self._end_segment(EndSegment())

    def _read(self, parts: Iterable[ToSay]) -> list[Event]:
        """Add text as it was read."""
        events: list[Event] = []
        for part in parts:
            text = part.text
            if part.manner != self._manner and (words := text.lstrip()):
                # Blanks belong to what is before them, so that it does not matter whether they come with the words.
                events += self.push_said(text[: len(text) - len(words)]) + self._rest()
                if not self._is_blank:
                    events += self._end_segment(EndSegment())
                self._manner, text = part.manner, words
            events += self.push_said(text)
            if part.pause_ms:
                events += self._rest() + self._end_segment(EndSegment(pause_ms=part.pause_ms))
        return events

    @property
    def _held(self) -> str:
        """The text that is not committed."""
        return self._uncommitted + ("" if self._sentences is None else self._sentences.held)

    @property
    def _waiting(self) -> str:
        """The end of the text that is spoken once more text or the segment's end comes."""
        return self._held if self._policy.mode is CommitMode.SENTENCE else self._tail

    def _whole_sentences(self, sentences: Iterable[str]) -> list[Event]:
        events: list[Event] = []
        for sentence in sentences:
            self._uncommitted += sentence
            if self._begun or len(self._uncommitted) >= self._policy.first_chunk_min_chars:
                whole, self._uncommitted = self._uncommitted, ""
                events += self._commit(whole) + self._end_segment(
                    EndSegment(pause_ms=PARAGRAPH_PAUSE_MS if _ends_paragraph(whole) else 0)
                )
        return events

    def _rest(self) -> list[Event]:
        text, self._uncommitted = self._held, ""
        if self._sentences is not None:
            self._sentences.rest()
        return self._commit(text)

    def _commit(self, text: str) -> list[Event]:
        events: list[Event] = []
        if not text:
            return events
        self._begun = True
        for piece, is_paragraph in self._cutter.split(text):
            self._is_blank = self._is_blank and not piece.strip()
            spoken = self.respeller.push(piece) if self.lexicon.entries else piece
            events.append(Text(piece, spoken, self._manner))
            if is_paragraph is not None:
                pause_ms = PARAGRAPH_PAUSE_MS if is_paragraph else 0
                events += self._end_of_segment(EndSegment(pause_ms=pause_ms, by_length=True))
        return events

    def _end_segment(self, end: EndSegment) -> list[Event]:
        self._tail = self._uncommitted[-_TAIL_CHARS:]
        self._cutter.restart()
        return self._end_of_segment(end)

    def _end_of_segment(self, end: EndSegment) -> list[Event]:
        tail = self.respeller.flush()
        self._is_blank = True
        return [Text("", tail, self._manner), end] if tail else [end]


def _ends_paragraph(text: str) -> bool:
    """Whether a text ends with an empty line."""
    return bool(_PARAGRAPH.search(text[-_SEEN_CHARS:]))


def _is_whole(text: str) -> bool:
    """Whether the last word of a text cannot grow any more."""
    return text[-1].isspace() or is_wide(text[-1]) or ends_sentence(text)


def _words_before_last(text: str) -> str:
    """Return the text without the word at its end, or "" if there is no other."""
    last = text.split()[-1:]
    whole = text[: text.rindex(last[0])] if last else ""
    return whole if whole.strip() else ""


class SegmentOfText(NamedTuple):
    written: str  # without markup
    spoken: str
    manner: Manner
    follows_cut: bool  # the segment before was ended by its length


def segments_of(
    text: str, policy: TextPolicy, lexicon: Lexicon, max_segment_chars: int, written_as: WrittenAs = PLAIN
) -> tuple[list[SegmentOfText], Reading]:
    """Return the segments of a whole text, and how the text was read. Raises InvalidField."""
    segmenter = Segmenter(policy, lexicon, max_segment_chars, written_as)
    segments, written, spoken, manner, follows_cut = list[SegmentOfText](), "", "", NEUTRAL, False
    for event in segmenter.push(text) + segmenter.end():
        match event:
            case Text():
                written, spoken, manner = written + event.written, spoken + event.spoken, event.manner
            case EndSegment(by_length=by_length):
                segments.append(SegmentOfText(written, spoken, manner, follows_cut))
                written, spoken, follows_cut = "", "", by_length
    return segments, segmenter.reading
