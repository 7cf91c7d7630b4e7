"""The texts to speak: sentences written for this benchmark, by language and length, in texts.tsv."""

import random
from collections.abc import Sequence
from importlib import resources

LANGUAGES = ("english", "chinese", "mixed")
LENGTHS = ("short", "medium", "long")


def texts(language: str, length: str, seed: int) -> tuple[str, ...]:
    """The texts of a language and length ("any" = all of them), in an order that depends on the seed."""
    chosen = [
        text
        for text_language, text_length, text in _all()
        if language in ("any", text_language) and length in ("any", text_length)
    ]
    random.Random(seed).shuffle(chosen)
    return tuple(chosen)


def default_language(served: Sequence[str]) -> str:
    """English if the server speaks it or does not say what it speaks, otherwise Chinese."""
    return "english" if not served or "english" in served else "chinese"


def _all() -> list[tuple[str, str, str]]:
    lines = resources.files("sonorant.bench").joinpath("texts.tsv").read_text(encoding="utf-8").splitlines()
    rows = []
    for line in lines:
        language, length, text = line.split("\t")
        rows.append((language, length, text))
    return rows
