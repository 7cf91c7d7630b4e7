"""What the readers of markup have in common: text comes in pieces, and what no later text can change goes on. Pure."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import regex

from sonorant.service.text.checks import is_speakable


@dataclass(frozen=True, slots=True)
class Manner:
    """How a stretch of text is to be spoken, beside what is asked of all of it."""

    gain_db: float = 0.0
    speed: float = 1.0
    instructions: str = ""


NEUTRAL = Manner()


@dataclass(frozen=True, slots=True)
class Said:
    """What is said for the next `num_written` characters of the text."""

    num_written: int
    text: str = ""
    pause_ms: int = 0  # silence after it
    manner: Manner = NEUTRAL


class NeedsMore(Exception):
    """Only more text can decide what comes next."""


@dataclass(frozen=True, slots=True)
class ReadingPlace:
    """Where a reader is in its text."""

    text: str
    position: int
    may_grow: bool

    @property
    def char(self) -> str:
        return self.text[self.position]

    def is_end(self, position: int) -> bool:
        """Whether the text pauses or ends at a position."""
        return not self.may_grow and position == len(self.text) - 1

    def growing(self) -> "ReadingPlace":
        """Return the place without the line end that a pause stands for, so that what is begun here waits for more."""
        return self if self.may_grow else ReadingPlace(self.text[:-1], self.position, may_grow=True)

    @property
    def has_words(self) -> bool:
        """Whether there are words in the rest of the text."""
        return is_speakable(self.text[self.position :])

    def match(self, pattern: "regex.Pattern[str]") -> "regex.Match[str] | None":
        """Match here. Raises NeedsMore if only more text can tell whether there is a match."""
        found = pattern.match(self.text, self.position, partial=self.may_grow)
        if found is not None and found.partial:
            raise NeedsMore
        return found


class Markup(ABC):
    """Reads a text from left to right. However the text is cut, the results, joined, are the same.

    Each step looks at a bounded stretch of text, and only such a stretch is held back while more text could change the
    step. So patterns say how long they may become, and end with what must follow: a match that more text could make
    longer is none.
    """

    def __init__(self) -> None:
        self.held = ""  # text of which it is not known yet what is said
        self.manner = NEUTRAL  # of what is read next
        self.ignored: dict[str, None] = {}  # names of what was read and has no effect, in order

    def push(self, text: str, *, is_last: bool = False) -> list[Said]:
        """Add text and return what is said. `is_last`: as if a line ended here, though text may follow."""
        text = self.held + text
        buffer = text + "\n" if is_last else text
        said: list[Said] = []
        position = 0
        while position < len(text):
            try:
                step = self._step(ReadingPlace(buffer, position, may_grow=not is_last))
            except NeedsMore:
                break
            position += step.num_written
            said.append(step if self.manner is NEUTRAL else replace(step, manner=self.manner))
        self.held = text[position:]
        return said

    @abstractmethod
    def _step(self, at: ReadingPlace) -> Said:
        """Read on. Raises NeedsMore."""
