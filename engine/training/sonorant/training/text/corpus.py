"""Stage `text` writes the sentence list: how many sentences of each kind, who speaks them, and which are held out."""

import logging
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sonorant.training.sentences import Sentence, write_sentences
from sonorant.training.text.addresses import address_sentence
from sonorant.training.text.grammar import EVERYDAY_FILE, Grammar, Rule
from sonorant.training.text.lexicon import LEXICON_FILE, lexicon_rules
from sonorant.training.text.numbers import number_digits, number_sentence, number_words, time_digits
from sonorant.training.text.prose import dialogue, paragraph, typographic
from sonorant.training.text.sources import Words, documentation, load_words, plain_sentences, wordnet_texts

logger = logging.getLogger(__name__)

# Sentences of each kind in a full-sized list; a smaller list keeps the proportions.
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
MAX_CHARS = {"paragraph": 850}  # of the kinds that may be longer than others
MAX_CHARS_OF_OTHERS = 330
MAX_REPEATS = 60_000

_GREETINGS = [
    "Hello.",
    "Hi.",
    "Yes.",
    "No.",
    "Okay.",
    "Thanks.",
    "Thank you.",
    "Please.",
    "Goodbye.",
    "Bye.",
    "Sorry.",
    "Stop.",
    "Go.",
    "Wait.",
    "Help!",
    "Now.",
    "Maybe.",
    "Sure.",
    "Good morning.",
    "Good night.",
    "Of course.",
    "I see.",
    "Come in.",
    "Not yet.",
    "Why not?",
    "Who?",
    "What?",
    "Where?",
    "When?",
    "How?",
    "Really?",
    "Right.",
]


def write_corpus(
    folder: Path,
    *,
    num_sentences: int,
    held_out: Sequence[tuple[str, str]],
    exclude: Iterable[str],
    speakers: Iterator[str],
    seed: int,
) -> None:
    """Write the sentence list. `held_out`: (kind, text) lines that come first and are not trained on; `exclude`: texts
    not to be used at all; `speakers`: the speaker of each line."""
    rng = random.Random(seed)
    seen = {normalized(text) for text in (*exclude, *(text for _, text in held_out))}
    by_kind: dict[str, list[str]] = {}
    for kind, generate in _generators(rng, load_words(), seed, by_kind).items():
        number = round(MIX[kind] * num_sentences / sum(MIX.values()))
        by_kind[kind] = _take(generate, number, seen, MAX_CHARS.get(kind, MAX_CHARS_OF_OTHERS), by_case=kind == "shout")
        logger.info("%d sentences of kind %s", len(by_kind[kind]), kind)
    rows = [(kind, typographic(text, rng)) for kind, texts in by_kind.items() for text in texts]
    rng.shuffle(rows)
    lines = enumerate([*((True, *line) for line in held_out), *((False, *line) for line in rows)])
    write_sentences(
        folder, (Sentence(row, next(speakers), kind, is_held_out, text) for row, (is_held_out, kind, text) in lines)
    )


def normalized(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))


def _take(texts: Iterator[str], num: int, seen: set[str], max_chars: int, *, by_case: bool) -> list[str]:
    """Return the first `num` new texts; fewer if the source ends or repeats itself too often."""
    taken: list[str] = []
    repeats = 0
    for text in texts:
        if len(taken) == num or repeats > MAX_REPEATS:
            break
        key = text if by_case else normalized(text)
        if key in seen or len(text) > max_chars or not text.isascii():
            repeats += 1
            continue
        seen.add(key)
        taken.append(text)
    return taken


def _generators(
    rng: random.Random, words: Words, seed: int, by_kind: Mapping[str, list[str]]
) -> Mapping[str, Iterator[str]]:
    """Return a generator per kind. Use them in this order: the last ones combine sentences of the first (`by_kind`)."""
    everyday_rules: Mapping[str, Rule] = {
        "first_name": lambda rng, form: rng.choice(words.names),
        "number_words": number_words,
        "number_digits": number_digits,
        "time_digits": time_digits,
    }
    everyday = Grammar.load(EVERYDAY_FILE, everyday_rules)
    lexicon = Grammar.load(LEXICON_FILE, lexicon_rules(words, seed))
    definitions, examples = wordnet_texts()

    def shuffled(texts: Iterator[str]) -> Iterator[str]:
        found = [s for text in texts for s in plain_sentences(text, words.known)]
        rng.shuffle(found)
        yield from found

    return {
        "everyday": _forever(lambda: everyday.sentence(rng)),
        "lexicon": _forever(lambda: lexicon.sentence(rng)),
        "example": shuffled(iter(examples)),
        "definition": shuffled(iter(definitions)),
        "documentation": (s for text in documentation(rng) for s in plain_sentences(text, words.known)),
        "number": _forever(lambda: number_sentence(rng)),
        "short": _short(rng, words),
        "shout": _forever(lambda: _shout(rng.choice(by_kind["everyday"]), rng)),
        "dialogue": _forever(lambda: dialogue(by_kind["everyday"], words.names, rng)),
        "address": _forever(lambda: address_sentence(words, rng)),
        "long": _forever(lambda: _joined(by_kind, rng)),
        "paragraph": _forever(lambda: paragraph(by_kind, rng)),
    }


def _forever(make: Callable[[], str]) -> Iterator[str]:
    while True:
        yield make()


def _short(rng: random.Random, words: Words) -> Iterator[str]:
    yield from _GREETINGS
    common = words.by_size[10] + words.by_size[20]
    while True:
        text = " ".join(rng.choice(common) for _ in range(rng.choice((1, 1, 2, 2, 3))))
        if rng.random() < 0.3:
            text = f"{rng.choice(_GREETINGS)[:-1]}, {rng.choice(words.names)}"
        yield text[0].upper() + text[1:] + rng.choice("...?!") * (rng.random() < 0.9)


def _shout(text: str, rng: random.Random) -> str:
    """Write a word of the text, or all of it, in capitals."""
    if rng.random() < 0.4:
        return text.upper()
    parts = text.split(" ")
    index = rng.randrange(len(parts))
    return " ".join((*parts[:index], parts[index].upper(), *parts[index + 1 :]))


def _joined(by_kind: Mapping[str, list[str]], rng: random.Random) -> str:
    """Join two to eight sentences, as in real text: by a space, a conjunction, a semicolon or a dash."""
    num = rng.choice((2, 2, 2, 3, 3, 4, 5, 6, 8))
    kinds = ("everyday", "everyday", "everyday", "example", "documentation", "number", "lexicon", "short")
    sentences = [rng.choice(by_kind[rng.choice(kinds)]) for _ in range(num)]
    if num == 2 and rng.random() < 0.3:
        first, second = sentences[0].rstrip(".!?"), sentences[1][0].lower() + sentences[1][1:]
        return f"{first}{rng.choice((', and ', ', but ', '; ', ' - ', ': ', ', because '))}{second}"
    if num == 2 and rng.random() < 0.2:
        return f'"{sentences[0].rstrip(".")}," {rng.choice(("he said.", "she said.", "they asked.", "said the man."))}'
    return " ".join(sentences)
