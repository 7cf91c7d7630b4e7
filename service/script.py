"""The text of one utterance on its way to the engine: limits, when it is committed, where it is cut. Pure.

Committed text lies in segments. Each segment is an engine stream of its own, spoken to its end before the next one
begins, which is what "speak everything received so far" takes: the model speaks the last words only once it knows that
they are. A flush ends a segment, and in SENTENCE mode so does each sentence.
"""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto

from engine import EngineStream
from service.errors import InvalidField, LimitReached
from service.progress import Progress
from service.pronunciations import Lexicon, Respeller
from service.sentences import certain_end
from service.text import check_characters, check_length, is_speakable

MAX_PENDING_FLUSHES = 64
MAX_PAUSE_MS = 5000


class CommitMode(Enum):
    TOKEN = auto()
    SENTENCE = auto()
    MANUAL = auto()


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """A checked TextPolicy of the contract."""

    mode: CommitMode = CommitMode.TOKEN
    max_buffer_delay_s: float | None = None
    first_chunk_min_chars: int = 0
    language: str = "en"  # for sentences


@dataclass(slots=True, eq=False)
class Segment:
    """Committed text. It is held until something in it can be spoken, then goes to the engine as it comes."""

    held: list[str] = field(default_factory=list)
    speakable: bool = False
    closed: bool = False
    flush_id: int | None = None  # of the flush that closed it, ...
    pause_ms: int = 0  # ... which wants so much silence after it
    last: bool = False  # the end of the utterance closed it
    ready: asyncio.Event = field(default_factory=asyncio.Event)  # there is something to say, or there never will be
    stream: EngineStream | None = None
    allowed_frames: int = 0  # that the stream may make, from the first on

    def push(self, text: str) -> None:
        if self.stream is not None:
            self.stream.push_text(text)
            return
        self.held.append(text)
        if is_speakable(text):
            self.speakable = True
            self.ready.set()

    def close(self, flush_id: int | None = None, pause_ms: int = 0, *, last: bool = False) -> None:
        self.closed = True
        self.flush_id = flush_id
        self.pause_ms = pause_ms
        self.last = last
        self.ready.set()
        if self.stream is not None:
            self.stream.end_text()

    def attach(self, stream: EngineStream, allowed_frames: int) -> None:
        self.stream = stream
        self.allowed_frames = allowed_frames
        stream.push_text("".join(self.held))
        self.held.clear()
        if self.closed:
            stream.end_text()


class Script:
    """After an InvalidField, LimitReached or InvalidSynthesis out of any of its methods the utterance cannot go on."""

    def __init__(self, policy: TextPolicy, progress: Progress, max_chars: int, lexicon: Lexicon) -> None:
        self.num_chars = 0
        self.first_text_s = 0.0  # when something speakable came; 0 = never
        self.ended = False
        self.segments = deque([Segment()])  # the first one is being spoken
        self._policy = policy
        self._progress = progress
        self._respeller = Respeller(lexicon)
        self._max_chars = max_chars
        self._uncommitted = ""
        self._begun = False  # something was committed

    def push(self, text: str) -> None:
        check_length(self.num_chars + len(text), self._max_chars, "text")
        check_characters(text, "text")
        self.num_chars += len(text)
        self._note_first(text)
        mode = self._policy.mode
        if mode is CommitMode.TOKEN and self._begun:
            self._commit(text)
            return
        self._uncommitted += text
        if mode is CommitMode.SENTENCE:
            self._commit_sentences()
        elif mode is CommitMode.TOKEN and len(self._uncommitted) >= self._policy.first_chunk_min_chars:
            self._commit_rest()

    def flush(self, flush_id: int, pause_ms: int = 0) -> None:
        if pause_ms > MAX_PAUSE_MS:
            raise InvalidField("flush.pause_ms", f"{pause_ms} is over {MAX_PAUSE_MS}")
        if sum(segment.flush_id is not None for segment in self.segments) >= MAX_PENDING_FLUSHES:
            raise LimitReached("flushes", f"{MAX_PENDING_FLUSHES} flushes wait to be spoken; flush less often")
        self._commit_rest()
        self._cut(flush_id, pause_ms)

    def end(self) -> None:
        """No more text. Idempotent."""
        if not self.ended:
            self.ended = True
            self._commit_rest()
            self._close(last=True)

    def commit_tail(self) -> None:
        """Speak what waits for more text, since none has come for a while."""
        if self.ended or self._policy.mode is CommitMode.MANUAL:
            return
        waits = bool(self._uncommitted)
        self._commit_rest()
        if self._policy.mode is CommitMode.TOKEN:
            self._say(self._respeller.flush())
            stream = self.segments[-1].stream
            if stream is not None:
                stream.flush_text()
        elif waits:
            self._cut()

    def _commit_sentences(self) -> None:
        start = 0
        while length := certain_end(self._uncommitted[start:], self._policy.language):
            start += length
            if self._begun or start >= self._policy.first_chunk_min_chars:
                self._commit(self._uncommitted[:start])
                self._uncommitted = self._uncommitted[start:]
                self._cut()
                start = 0

    def _commit_rest(self) -> None:
        text, self._uncommitted = self._uncommitted, ""
        if text:
            self._commit(text)

    def _commit(self, text: str) -> None:
        self._begun = True
        self._progress.push_text(text)
        self._say(self._respeller.push(text))

    def _say(self, spoken: str) -> None:
        if spoken:
            self._note_first(spoken)  # a sign that is respelled may be all there is
            self.segments[-1].push(spoken)

    def _note_first(self, text: str) -> None:
        if not self.first_text_s and is_speakable(text):
            self.first_text_s = time.monotonic()

    def _cut(self, flush_id: int | None = None, pause_ms: int = 0) -> None:
        self._close(flush_id, pause_ms)
        self.segments.append(Segment())

    def _close(self, flush_id: int | None = None, pause_ms: int = 0, *, last: bool = False) -> None:
        self._say(self._respeller.flush())
        self._progress.end_text()
        self.segments[-1].close(flush_id, pause_ms, last=last)
