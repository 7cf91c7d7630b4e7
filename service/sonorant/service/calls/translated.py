"""A response of another contract, together with the equivalent message of ours, from which the record is made."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Translated:
    ours: Any
    message: Any = None  # None: nothing is sent
