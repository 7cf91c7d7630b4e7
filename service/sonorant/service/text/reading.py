"""From the text as it is written to the text that is said, and offsets from one to the other. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from sonorant.service.text.checks import is_speakable
from sonorant.service.text.markup import NEUTRAL, Manner, Markup

MAX_IGNORED_CHARS = 64  # of one name


@dataclass(frozen=True, slots=True)
class ToSay:
    """A stretch of what is said."""

    text: str
    pause_ms: int = 0  # silence after it
    manner: Manner = NEUTRAL


class Reading:
    """Reads a text that comes in pieces. `markup` makes the reader of its format; None = the text is said as it is, and
    need not be pushed."""

    def __init__(self, markup: Callable[[], Markup] | None = None) -> None:
        self._make = markup
        self._markup = None if markup is None else markup()
        self.is_plain = markup is None
        self._num_written = 0
        self._num_said = 0
        self._said: list[str] = []
        self._settled: list[int] = []  # offsets in the written text
        # Of each stretch that is said: where it begins, said and written, and how long it is as it was written.
        self._begins_said = [0]
        self._begins_written = [0]
        self._lengths = [0]

    @property
    def held(self) -> str:
        """The text of which it is not known yet what is said."""
        return "" if self._markup is None else self._markup.held

    @property
    def ignored(self) -> list[str]:
        """What was in the text and has no effect, with what is held back at the end for want of its partner."""
        if self._markup is None:
            return []
        held = self._markup.held[:MAX_IGNORED_CHARS]
        return [*self._markup.ignored, *([held] if is_speakable(held) else [])]

    def settle(self) -> list[ToSay]:
        """Return what is said for the held text if nothing follows soon."""
        if self._markup is None or not self._markup.held:
            return []
        self._settled.append(self._num_written + len(self._markup.held))
        return self.push("", is_last=True)

    def again(self, written: str) -> "Reading":
        """Return a reading of a beginning of the text, as it was read."""
        other = Reading(self._make)
        if self.is_plain:
            return other
        begin = 0
        for end in self._settled:
            if end > len(written):
                break
            other.push(written[begin:end])
            other.settle()
            begin = end
        other.push(written[begin:])
        return other

    def said(self, written: str) -> str:
        """Return what is said for the text so far, which is `written`."""
        return written if self._markup is None else "".join(self._said)

    def written_begin(self, said: int) -> int:
        """Map the offset at which something said begins to one in the text as it was written."""
        if self._markup is None:
            return said
        index = bisect_right(self._begins_said, said) - 1
        return self._begins_written[index] + self._within(index, said)

    def written_end(self, said: int) -> int:
        """Map the offset at which something said ends."""
        if self._markup is None or said <= 0:
            return said
        index = max(0, bisect_left(self._begins_said, said) - 1)
        return self._begins_written[index] + (self._within(index, said) or self._lengths[index])

    def _within(self, index: int, said: int) -> int:
        """Return how many characters of a stretch come before an offset; 0 if they are said otherwise than written."""
        is_last = index + 1 == len(self._begins_said)
        num_said = (self._num_said if is_last else self._begins_said[index + 1]) - self._begins_said[index]
        return said - self._begins_said[index] if num_said == self._lengths[index] else 0

    def push(self, text: str, *, is_last: bool = False) -> list[ToSay]:
        """Add text. Return what is said. Raises InvalidField."""
        assert self._markup is not None, "a plain text is said as it is"
        parts: list[ToSay] = []
        joined, manner = "", NEUTRAL
        for said in self._markup.push(text, is_last=is_last):
            if said.text:
                if joined and said.manner != manner:
                    parts.append(ToSay(joined, manner=manner))
                    joined = ""
                self._add(said.text, said.num_written)
                self._said.append(said.text)
                joined, manner = joined + said.text, said.manner
            self._num_written += said.num_written
            if said.pause_ms:
                parts.append(ToSay(joined, said.pause_ms, manner))
                joined = ""
        if joined:
            parts.append(ToSay(joined, manner=manner))
        return parts

    def _add(self, text: str, num_written: int) -> None:
        is_copied = len(text) == num_written
        follows = self._begins_written[-1] + self._lengths[-1] == self._num_written
        last_is_copied = self._num_said - self._begins_said[-1] == self._lengths[-1]
        if is_copied and follows and last_is_copied:
            self._lengths[-1] += num_written
        else:
            self._begins_said.append(self._num_said)
            self._begins_written.append(self._num_written)
            self._lengths.append(num_written)
        self._num_said += len(text)
