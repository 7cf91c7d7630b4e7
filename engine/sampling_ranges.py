"""What the sampling settings may be, of an utterance and of a checkpoint's own defaults alike."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from engine.types import SamplingParams

MAX_SEED = 2**32 - 1


class OutOfRange(NamedTuple):
    field: str  # of SamplingParams
    message: str


def out_of_range(s: SamplingParams) -> OutOfRange | None:
    """The first setting that cannot be, if there is one."""
    for field, must in _wrong(s):
        return OutOfRange(field, f"{field} is {getattr(s, field)!r}; it must be {must}")
    return None


def _wrong(s: SamplingParams) -> Iterator[tuple[str, str]]:
    for prefix, sampled in (("", s.do_sample), ("subtalker_", s.subtalker_do_sample)):
        if sampled and not 0 < getattr(s, f"{prefix}temperature") < math.inf:
            hint = f"for the likeliest code at each step turn {prefix}do_sample off"
            yield f"{prefix}temperature", f"above 0 and finite; {hint}"
        if getattr(s, f"{prefix}top_k") < 0:
            yield f"{prefix}top_k", "0 (no limit) or more"
        if not 0 < getattr(s, f"{prefix}top_p") <= 1:
            yield f"{prefix}top_p", "above 0 and at most 1 (no limit)"
    if not 0 < s.repetition_penalty < math.inf:
        yield "repetition_penalty", "above 0 and finite; 1 is no penalty"
    if not 0 <= s.seed <= MAX_SEED:
        yield "seed", f"0 to {MAX_SEED}"
    if s.min_frames < 0:
        yield "min_frames", "0 or more"
    if s.max_frames < 1:
        yield "max_frames", "1 or more"
