"""The allowed ranges of the sampling settings, of an utterance as well as of a checkpoint's defaults."""

from collections.abc import Iterator
from typing import NamedTuple

from sonorant.engine.types import SamplingParams

MAX_SEED = 2**32 - 1

# The range of temperatures and penalties, which divide the model's scores. Useful values lie well inside; far outside,
# scores overflow and nothing can be sampled.
MIN_DIVISOR, MAX_DIVISOR = 0.001, 100.0


class OutOfRange(NamedTuple):
    field: str  # of SamplingParams
    message: str


def out_of_range(s: SamplingParams) -> OutOfRange | None:
    """Return the first setting that is out of its range, or None."""
    for field, must in _wrong(s):
        return OutOfRange(field, f"{field} is {getattr(s, field)!r}; it must be {must}")
    return None


def _wrong(s: SamplingParams) -> Iterator[tuple[str, str]]:
    for prefix, sampled in (("", s.do_sample), ("subtalker_", s.subtalker_do_sample)):
        temperature = getattr(s, f"{prefix}temperature")
        is_greedy = temperature == 0 and not sampled  # as many write it
        if not is_greedy and not MIN_DIVISOR <= temperature <= MAX_DIVISOR:
            hint = f"for the likeliest code at each step turn {prefix}do_sample off"
            yield f"{prefix}temperature", f"{MIN_DIVISOR:g} to {MAX_DIVISOR:g}; {hint}"
        if getattr(s, f"{prefix}top_k") < 0:
            yield f"{prefix}top_k", "0 (no limit) or more"
        if not 0 < getattr(s, f"{prefix}top_p") <= 1:
            yield f"{prefix}top_p", "above 0 and at most 1 (no limit)"
    if not MIN_DIVISOR <= s.repetition_penalty <= MAX_DIVISOR:
        yield "repetition_penalty", f"{MIN_DIVISOR:g} to {MAX_DIVISOR:g}; 1 is no penalty"
    if not 0 <= s.seed <= MAX_SEED:
        yield "seed", f"0 to {MAX_SEED}"
    if s.min_frames < 0:
        yield "min_frames", "0 or more"
    if s.max_frames < 1:
        yield "max_frames", "1 or more"
