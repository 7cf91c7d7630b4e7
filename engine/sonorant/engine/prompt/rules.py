"""The form of the rules by which numbers, and what else is written in short, become words of a language. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import regex

MAX_HELD = 64  # characters; what is longer is read in parts
SEEN_CHARS = 24  # before a place, as many as tell what it is
_ONES = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
ROMAN = [tens + ones for tens in ("", "X", "XX", "XXX", "XL", "L") for ones in _ONES]  # numerals, by their numbers

Parts = Mapping[str, Any]  # what the groups of a pattern match: text, or None


def one_of(words: Iterable[str]) -> str:
    """Return a pattern of these words; where several match, the longest does."""
    return "|".join(regex.escape(word) for word in sorted(words, key=len, reverse=True))


class Rules:
    """Those of one language."""

    def __init__(
        self,
        kinds: Mapping[str, Callable[[Parts], str]],
        *,
        growing: str,
        begun: str,
        ends: str,
        minus: str,
        to: str,
    ) -> None:
        """`kinds`: what becomes words, and which; the first that matches counts. `growing`: what may become some yet,
        with the word behind it, or a word; behind one that is `begun` only what follows shows it. `ends`: of what
        may be the first of two, between which a hyphen is `to`."""
        self.growing = regex.compile(
            rf"(?:{growing})(?P<ahead>(?<=(?<!\p{{L}})(?:{begun})s?\.?)[ -][^ ]{{0,2}}(?: [^ ]?)?)?"
        )
        any_kind = "|".join(f"(?:{kind})(?P<kind{i}>)" for i, kind in enumerate(kinds))
        self.kind = regex.compile(rf"(?:(?P<to>(?<={ends})-(?=[\d$€]))|(?P<minus>-))?(?:{any_kind})")
        self.minus, self.to = minus, to
        self._read = tuple(kinds.values())

    def read(self, parts: Parts) -> str:
        """Return the words for a match of `kind`."""
        return next(read for i, read in enumerate(self._read) if parts[f"kind{i}"] is not None)(parts)
