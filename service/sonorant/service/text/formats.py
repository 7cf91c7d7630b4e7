"""The formats in which a text may be written."""

from dataclasses import dataclass
from enum import Enum
from functools import partial

from sonorant.service.text.directions import Directions, Plain
from sonorant.service.text.markdown import Markdown, Part
from sonorant.service.text.reading import Reading
from sonorant.service.text.ssml import Ssml


class TextFormat(Enum):
    PLAIN = "plain"
    MARKDOWN = "markdown"
    SSML = "ssml"


@dataclass(frozen=True, slots=True)
class WrittenAs:
    format: TextFormat = TextFormat.PLAIN
    leave_out: frozenset[Part] = frozenset()  # of markdown
    directions: Directions | None = None  # those in brackets; not of SSML

    def reading(self) -> Reading:
        match self.format:
            case TextFormat.PLAIN:
                return Reading() if self.directions is None else Reading(partial(Plain, self.directions))
            case TextFormat.MARKDOWN:
                return Reading(partial(Markdown, self.leave_out, self.directions))
            case TextFormat.SSML:
                return Reading(Ssml)


PLAIN = WrittenAs()
