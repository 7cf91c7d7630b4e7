"""What one caller may use of the server while it speaks."""

from collections.abc import Callable
from dataclasses import dataclass

from sonorant.service.admission.reservations import Reservations
from sonorant.service.calls.loop_share import LoopAccess
from sonorant.service.utterance.phrases import CallerPhrases


@dataclass(frozen=True, slots=True)
class Allowance:
    reservations: Reservations  # seen by this caller
    phrases: CallerPhrases | None  # None: the phrase cache is off
    part: LoopAccess  # its share of the event loop, for work on texts
    max_text_chars: int  # of an utterance
    # Called with a number of characters; raises LimitReached if they may not be spoken now. None: the caller's text has
    # no limit.
    charge: Callable[[int], None] | None
