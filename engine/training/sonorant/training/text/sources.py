"""Sentences and words from free software: WordNet, SCOWL's word lists, documentation of Python packages.

Debian: `apt install wordnet-base scowl`. Only the teacher speaks the texts; none is part of the checkpoint.
"""

import random
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sonorant.engine.errors import EngineError

SCOWL_DIR = Path("/usr/share/dict/scowl")
WORDNET_DIR = Path("/usr/share/wordnet")
PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")

_SENTENCE = re.compile(r"[¿¡]?[^\W\d_](?:[^\W\d_]|[',;:\- ¿¡])*[.!?]?")
_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_ELIDED = re.compile(r"^\w{1,5}'")  # l'eau, qu'il, dell'acqua
_WORD = re.compile(r"(?:[^\W\d_]|')+")


class SourceMissing(EngineError):
    """A word list or corpus is not installed."""


@dataclass(frozen=True, slots=True)
class Words:
    """Dictionary words in lower case, by SCOWL's sizes 10 (most common) to 60; names are separate."""

    by_size: Mapping[int, tuple[str, ...]]
    names: tuple[str, ...]
    known: frozenset[str]  # all words and names, in lower case


def load_words(folder: Path = SCOWL_DIR) -> Words:
    def read(*stems: str) -> tuple[str, ...]:
        lines = []
        for stem in stems:
            path = folder / stem
            if path.is_file():
                lines += path.read_text(encoding="latin-1").split()
        return tuple(w for w in lines if w.isascii())

    by_size = {
        size: tuple(
            w for w in read(f"english-words.{size}", f"american-words.{size}") if re.fullmatch(r"[a-z']{2,15}", w)
        )
        for size in (10, 20, 35, 40, 50, 55, 60)
    }
    names = read("english-proper-names.50", "english-proper-names.35", "american-proper-names.50", "english-upper.35")
    if not by_size[10]:
        raise SourceMissing(f"no word lists in {folder}; on Debian: apt install scowl")
    names = tuple(n for n in names if re.fullmatch(r"[A-Z][a-z]{2,11}", n))
    known = frozenset(w for words in by_size.values() for w in words) | {n.lower() for n in names}
    return Words(by_size, names, known)


def wordnet_texts(folder: Path = WORDNET_DIR) -> tuple[list[str], list[str]]:
    """Return WordNet's definitions and example sentences."""
    definitions, examples = [], []
    for part in PARTS_OF_SPEECH:
        for line in _lines(folder / f"data.{part}"):
            gloss = line.partition(" | ")[2].strip()
            examples += re.findall(r'"([^"]+)"', gloss)
            definition = re.sub(r"\([^)]*\)", "", gloss.split('"')[0]).strip(" ;:")
            definitions += definition.split("; ")
    return definitions, examples


def wordnet_lemmas(folder: Path = WORDNET_DIR) -> Mapping[str, Counter[str]]:
    """Single-word lemmas of each part of speech, with their counts in tagged text, where many do not occur."""
    lemmas: dict[str, Counter[str]] = {part: Counter() for part in PARTS_OF_SPEECH}
    for part in PARTS_OF_SPEECH:
        for line in _lines(folder / f"index.{part}"):
            lemma = line.split(" ", 1)[0]
            if re.fullmatch(r"[a-z]{2,14}", lemma):
                lemmas[part][lemma] = 0
    for line in _lines(folder / "cntlist.rev"):
        key, _, count = line.split()
        lemma, _, kind = key.partition("%")
        part = {"1": "noun", "2": "verb", "3": "adj", "4": "adv", "5": "adj"}[kind[0]]
        if lemma in lemmas[part]:
            lemmas[part][lemma] += int(count)
    return lemmas


def documentation(rng: random.Random) -> Iterator[str]:
    """Paragraphs of docstrings of the standard library and of the installed packages, file by file in random order."""
    paths = sysconfig.get_paths()
    files = [file for root in (paths["stdlib"], paths["purelib"]) for file in sorted(Path(root).rglob("*.py"))]
    for file in rng.sample(files, len(files)):
        for docstring in _DOCSTRING.findall(file.read_text(encoding="utf-8", errors="ignore")):
            yield from docstring.split("\n\n")


def plain_sentences(text: str, known: frozenset[str], max_chars: int = 150) -> Iterator[str]:
    """The sentences of `text` that are known words with ordinary punctuation."""
    for part in re.split(r"(?<=[.!?])\s+", re.sub(r"[`*_]{1,2}", "", text)):
        sentence = re.sub(r"\s+", " ", part).strip(" -,;:")
        words = _WORD.findall(sentence)
        if not 3 <= len(words) <= 28 or len(sentence) > max_chars or not _SENTENCE.fullmatch(sentence):
            continue
        if (
            "--" in sentence
            or any(len(w) > 1 and w.isupper() for w in words)
            or not all(_is_known(w, known) for w in words)
        ):
            continue
        sentence = sentence[0].upper() + sentence[1:]
        yield sentence if sentence[-1] in ".!?" else sentence.rstrip(",;: -") + "."


def _is_known(word: str, known: frozenset[str]) -> bool:
    word = word.lower().strip("'")
    return word in known or word.removesuffix("'s") in known or _ELIDED.sub("", word) in known


def _lines(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise SourceMissing(f"{path} is missing; on Debian: apt install wordnet-base")
    with path.open(encoding="latin-1") as file:
        yield from (line for line in file if not line.startswith("  "))
