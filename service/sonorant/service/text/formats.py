"""The formats in which a text may be written."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from sonorant.service.text.directions import Directions, Plain
from sonorant.service.text.markdown import Markdown, Part
from sonorant.service.text.markup import Markup
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
    is_english: bool = True  # or may be: phonemes of SSML are spelled as English would
    # Makes the reader of such a text; None: it is said as it is.
    markup: Callable[[], Markup] | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        markup: Callable[[], Markup] | None = None
        match self.format:
            case TextFormat.PLAIN if self.directions is not None:
                markup = partial(Plain, self.directions)
            case TextFormat.MARKDOWN:
                markup = partial(Markdown, self.leave_out, self.directions)
            case TextFormat.SSML:
                markup = partial(Ssml, self.is_english)
        object.__setattr__(self, "markup", markup)


PLAIN = WrittenAs()
