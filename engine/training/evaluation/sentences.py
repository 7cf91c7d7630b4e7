"""The sentences of the evaluation, which the text stage keeps out of training."""

from collections.abc import Sequence
from pathlib import Path

_FOLDER = Path(__file__).parent


def everyday_sentences() -> Sequence[str]:
    """Six to ten words each, written by hand for the evaluation."""
    return _FOLDER.joinpath("everyday.txt").read_text(encoding="utf-8").splitlines()


def held_out_sentences() -> Sequence[tuple[str, str]]:
    """(kind, text) of 200 sentences from the sources of the training text."""
    lines = _FOLDER.joinpath("held_out.tsv").read_text(encoding="utf-8").splitlines()
    return [(kind, text) for kind, text in (line.split("\t") for line in lines)]
