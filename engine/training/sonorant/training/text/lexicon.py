"""Draws words for `lexicon.grammar`: common words often, and every word of the dictionary in turn."""

import itertools
import random
from collections.abc import Mapping, Sequence
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
    rules["any"] = in_turn(everything, rng)
    rules["name"] = in_turn(words.names, rng)
    return rules


def _drawing(population: list[str], cumulative_weights: list[float], known: frozenset[str]) -> Rule:
    def draw(rng: random.Random, form: str | None) -> str:
        word = rng.choices(population, cum_weights=cumulative_weights)[0]
        inflected = inflect(word, form)
        return inflected if inflected in known else word

    return draw


def in_turn(words: Sequence[str], rng: random.Random) -> Rule:
    """Each of the words before any of them again."""
    endless = itertools.chain.from_iterable(rng.sample(words, len(words)) for _ in itertools.count())
    return lambda rng, form: next(endless)
