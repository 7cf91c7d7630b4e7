"""A response in another contract's words, with what it says in ours, for what is counted, measured and logged."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Translated:
    ours: Any
    message: Any = None  # None: nothing is sent
