"""Draws words for `lexicon.grammar`: common words often, and every word of the dictionary in turn."""

import itertools
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from sonorant.training.text.grammar import Rule, inflect
from sonorant.training.text.sources import PARTS_OF_SPEECH, Words, wordnet_lemmas

LEXICON_FILE = Path(__file__).with_name("lexicon.grammar")


def lexicon_rules(words: Words, seed: int) -> Mapping[str, Rule]:
    rng = random.Random(seed)
    lemmas = wordnet_lemmas()
    rules: dict[str, Rule] = {}
    for part in PARTS_OF_SPEECH:
        counted = {w: count for w, count in lemmas[part].items() if w in words.known}
        # Take the square root of the counts: otherwise a hundred words would make up most of the text.
        weights = list(itertools.accumulate((count + 0.5) ** 0.5 for count in counted.values()))
        rules[part] = _drawing(list(counted), weights, words.known)
    everything = [w for listed in words.by_size.values() for w in listed]
    rules["any"] = _in_turn(_endless(everything, rng))
    rules["name"] = _in_turn(_endless(list(words.names), rng))
    return rules


def _drawing(population: list[str], cumulative_weights: list[float], known: frozenset[str]) -> Rule:
    def draw(rng: random.Random, form: str | None) -> str:
        word = rng.choices(population, cum_weights=cumulative_weights)[0]
        inflected = inflect(word, form)
        return inflected if inflected in known else word

    return draw


def _in_turn(words: Iterator[str]) -> Rule:
    return lambda rng, form: next(words)


def _endless(words: list[str], rng: random.Random) -> Iterator[str]:
    while True:
        yield from rng.sample(words, len(words))
