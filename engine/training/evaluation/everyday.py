"""Everyday sentences of six to ten words, written for the evaluation; the text stage keeps them out of training."""

from collections.abc import Sequence
from pathlib import Path


def everyday_sentences() -> Sequence[str]:
    return Path(__file__).with_name("everyday.txt").read_text(encoding="utf-8").splitlines()
