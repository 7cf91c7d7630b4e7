"""The texts of each kind in the languages beside English: a grammar of each, and the tales of a game."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from sonorant.training.text.grammar import Grammar, Rule, everyday_file
from sonorant.training.text.lexicon import in_turn
from sonorant.training.text.prose import forever, paragraph, shout

# Of the sentences that are joined to longer texts.
_KINDS = ("everyday", "everyday", "everyday", "tale", "tale", "number", "short")


def texts_of(
    language: str, words: Sequence[str], tales: Sequence[str], rng: random.Random, by_kind: Mapping[str, list[str]]
) -> Mapping[str, Iterator[str]]:
    """Return a generator per kind. Use them in this order: the last ones combine sentences of the first (`by_kind`)."""

    def spoken(rng: random.Random, form: str | None) -> str:
        text = rng.choice(by_kind[rng.choice(("everyday", "everyday", "tale"))])
        match form:
            case "opened":  # a sentence that goes on after the quotation mark
                return text.removesuffix(".")
            case "cut":
                return text.rstrip(" .!?")
            case "small":
                return text[0].lower() + text[1:]
        return text

    grammar = Grammar.load(everyday_file(language), {**_number_rules(), "any": in_turn(words, rng), "spoken": spoken})

    def of(kind: str) -> Callable[[], str]:
        return lambda: grammar.sentence(rng, kind)

    def joined() -> str:
        number = rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 8))
        if number == 1:
            return grammar.sentence(rng, "joined")
        return " ".join(rng.choice(by_kind[rng.choice(_KINDS)]) for _ in range(number))

    return {
        "everyday": forever(of("sentence")),
        "tale": iter(rng.sample(tales, len(tales))),
        "number": forever(of("number")),
        "lexicon": forever(of("lexicon")),
        "short": forever(of("short")),
        "shout": forever(lambda: shout(rng.choice(by_kind["everyday"]), rng)),
        "dialogue": forever(of("said")),
        "long": forever(joined),
        "paragraph": forever(lambda: paragraph(by_kind, (*_KINDS, "dialogue"), rng)),
    }


def _number_rules() -> Mapping[str, Rule]:
    """{n99}: a number from 2 to 99, and the like; {d3}: three digits."""

    def below(end: int) -> Rule:
        return lambda rng, form: str(rng.randrange(2, end))

    def digits(count: int) -> Rule:
        return lambda rng, form: f"{rng.randrange(10**count):0{count}d}"

    def two_digits(common: Sequence[int]) -> Rule:
        return lambda rng, form: f"{rng.choice((rng.randrange(common[-1] + 1), *common)):02d}"

    return {
        **{f"n{end - 1}": below(end) for end in (10, 13, 32, 100)},
        "n199": lambda rng, form: str(int(10 ** rng.uniform(0.3, 2.3))),  # small numbers are common in speech
        **{f"d{count}": digits(count) for count in (2, 3, 4)},
        "cents": two_digits((50, 95, 99)),
        "hour": lambda rng, form: str(rng.randrange(1, 24)),
        "minute": two_digits((15, 30, 45, 59)),
        "year": lambda rng, form: str(rng.randint(1500, 2050)),
    }
