"""The English texts of each kind, from two grammars, WordNet, documentation, and what combines them."""

import random
from collections.abc import Iterator, Mapping

from sonorant.training.text.addresses import address_sentence
from sonorant.training.text.grammar import Grammar, Rule, everyday_file
from sonorant.training.text.lexicon import LEXICON_FILE, lexicon_rules
from sonorant.training.text.numbers import number_digits, number_sentence, number_words, time_digits
from sonorant.training.text.prose import dialogue, forever, paragraph, shout
from sonorant.training.text.sources import Words, documentation, plain_sentences, wordnet_texts

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
_KINDS_OF_PARAGRAPHS = ("everyday", "everyday", "everyday", "example", "documentation", "number", "lexicon", "dialogue")


def english_texts(
    rng: random.Random, words: Words, seed: int, by_kind: Mapping[str, list[str]]
) -> Mapping[str, Iterator[str]]:
    """Return a generator per kind. Use them in this order: the last ones combine sentences of the first (`by_kind`)."""
    everyday_rules: Mapping[str, Rule] = {
        "first_name": lambda rng, form: rng.choice(words.names),
        "number_words": number_words,
        "number_digits": number_digits,
        "time_digits": time_digits,
    }
    everyday = Grammar.load(everyday_file("english"), everyday_rules)
    lexicon = Grammar.load(LEXICON_FILE, lexicon_rules(words, seed))
    definitions, examples = wordnet_texts()

    def shuffled(texts: Iterator[str]) -> Iterator[str]:
        found = [s for text in texts for s in plain_sentences(text, words.known)]
        rng.shuffle(found)
        yield from found

    return {
        "everyday": forever(lambda: everyday.sentence(rng)),
        "lexicon": forever(lambda: lexicon.sentence(rng)),
        "example": shuffled(iter(examples)),
        "definition": shuffled(iter(definitions)),
        "documentation": (s for text in documentation(rng) for s in plain_sentences(text, words.known)),
        "number": forever(lambda: number_sentence(rng)),
        "short": _short(rng, words),
        "shout": forever(lambda: shout(rng.choice(by_kind["everyday"]), rng)),
        "dialogue": forever(lambda: dialogue(by_kind["everyday"], words.names, rng)),
        "address": forever(lambda: address_sentence(words, rng)),
        "long": forever(lambda: _joined(by_kind, rng)),
        "paragraph": forever(lambda: paragraph(by_kind, _KINDS_OF_PARAGRAPHS, rng)),
    }


def _short(rng: random.Random, words: Words) -> Iterator[str]:
    yield from _GREETINGS
    common = words.by_size[10] + words.by_size[20]
    while True:
        text = " ".join(rng.choice(common) for _ in range(rng.choice((1, 1, 2, 2, 3))))
        if rng.random() < 0.3:
            text = f"{rng.choice(_GREETINGS)[:-1]}, {rng.choice(words.names)}"
        yield text[0].upper() + text[1:] + rng.choice("...?!") * (rng.random() < 0.9)


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
