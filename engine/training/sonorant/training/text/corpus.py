"""Stage `text` writes the sentence list: how many sentences of each kind, who speaks them, and which are held out."""

import logging
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sonorant.training.sentences import Sentence, write_sentences
from sonorant.training.text.english import english_texts
from sonorant.training.text.other_languages import texts_of
from sonorant.training.text.prose import typographic
from sonorant.training.text.sources import load_words
from sonorant.training.text.translations import dictionary, tale_sentences

logger = logging.getLogger(__name__)

# Sentences of each kind in a full-sized list of one language; a smaller list keeps the proportions.
MIX: Mapping[str, int] = {
    "everyday": 110_000,
    "lexicon": 70_000,
    "example": 25_000,  # WordNet's example sentences
    "definition": 35_000,
    "documentation": 40_000,
    "number": 30_000,
    "short": 10_000,
    "shout": 5_000,
    "dialogue": 20_000,
    "address": 15_000,
    "long": 22_000,
    "paragraph": 12_000,
}
MIX_OF_OTHERS: Mapping[str, int] = {
    "everyday": 60_000,
    "tale": 20_000,
    "number": 14_000,
    "lexicon": 12_000,
    "short": 3_000,
    "shout": 1_000,
    "dialogue": 7_000,
    "long": 9_000,
    "paragraph": 4_000,
}
MAX_CHARS = {"paragraph": 850}  # of the kinds that may be longer than others
MAX_CHARS_OF_OTHERS = 330
MAX_REPEATS = 60_000


def write_corpus(
    folder: Path,
    *,
    num_sentences: int,
    languages: Mapping[str, float],
    held_out: Sequence[tuple[str, str, str]],
    exclude: Iterable[str],
    speakers: Iterator[str],
    seed: int,
) -> None:
    """Write the sentence list. `languages`: their shares of the sentences; `held_out`: (language, kind, text) lines
    that come first and are not trained on; `exclude`: texts not to be used at all; `speakers`: of each line its own."""
    rng = random.Random(seed)
    unwanted = {normalized(text) for text in (*exclude, *(text for _, _, text in held_out))}
    rows = []
    for language, share in languages.items():
        texts = _texts(language, round(share * num_sentences), {*unwanted}, rng, seed)
        rows += [(language, kind, typographic(text, rng)) for kind, listed in texts.items() for text in listed]
    rng.shuffle(rows)
    lines = enumerate([*((True, *line) for line in held_out), *((False, *line) for line in rows)])
    write_sentences(
        folder,
        (
            Sentence(row, next(speakers), kind, language, is_held_out, text)
            for row, (is_held_out, language, kind, text) in lines
        ),
    )


def normalized(text: str) -> str:
    return " ".join(re.findall(r"(?:[^\W_]|')+", text.lower()))


def _texts(language: str, number: int, seen: set[str], rng: random.Random, seed: int) -> Mapping[str, list[str]]:
    by_kind: dict[str, list[str]] = {}
    if language == "english":
        mix, sources = MIX, english_texts(rng, load_words(), seed, by_kind)
    else:
        words = dictionary(language)
        mix, sources = MIX_OF_OTHERS, texts_of(language, words, tale_sentences(language, words), rng, by_kind)
    for kind, source in sources.items():
        wanted = round(mix[kind] * number / sum(mix.values()))
        max_chars = MAX_CHARS.get(kind, MAX_CHARS_OF_OTHERS)
        by_kind[kind] = _take(source, wanted, seen, max_chars, by_case=kind == "shout")
        logger.info("%d sentences of kind %s in %s", len(by_kind[kind]), kind, language)
    return by_kind


def _take(texts: Iterator[str], num: int, seen: set[str], max_chars: int, *, by_case: bool) -> list[str]:
    """Return the first `num` new texts; fewer if the source ends or repeats itself too often."""
    taken: list[str] = []
    repeats = 0
    for text in texts:
        if len(taken) == num or repeats > MAX_REPEATS:
            break
        key = text if by_case else normalized(text)
        if key in seen or len(text) > max_chars:
            repeats += 1
            continue
        seen.add(key)
        taken.append(text)
    return taken
