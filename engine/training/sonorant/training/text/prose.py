"""Texts as people write them: dialogue, paragraphs of several lines, typographic quotes, dashes and apostrophes."""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

TYPOGRAPHIC_SHARE = 0.35  # of the texts, as word processors and phones write them
_SAID = ("said", "asked", "replied", "whispered", "shouted", "answered", "added", "told them")
_PRONOUNS = ("he", "she", "they", "his mother", "her friend", "the teacher", "the old man", "someone")
_TALK = (
    "Really?",
    "Are you sure?",
    "I think so.",
    "Oh, no!",
    "What do you mean?",
    "Why not?",
    "Well, it depends.",
    "Of course!",
    "You know what?",
    "Hmm, maybe.",
    "That's right.",
    "Not at all.",
    "How come?",
    "Don't worry.",
    "I can't believe it!",
    "Let's go, shall we?",
)


def forever(make: Callable[[], str]) -> Iterator[str]:
    while True:
        yield make()


def dialogue(everyday: Sequence[str], names: Sequence[str], rng: random.Random) -> str:
    """Someone speaks, is named, and perhaps speaks on or gets an answer."""
    first, second = rng.choice(everyday), rng.choice((rng.choice(everyday), rng.choice(_TALK)))
    who = (
        f"{rng.choice(_SAID)} {rng.choice(names)}"
        if rng.random() < 0.4
        else f"{rng.choice(_PRONOUNS)} {rng.choice(_SAID)}"
    )
    opened = first[:-1] + "," if first.endswith(".") else first
    return rng.choice(
        (
            f'"{opened}" {who}.',
            f'"{opened}" {who}. "{second}"',
            f'{who[0].upper()}{who[1:]}, "{second}"',
            f'"{first}"\n"{second}"',
            f"{first} {second}",
            f"{second} {first}",
        )
    )


def paragraph(by_kind: Mapping[str, Sequence[str]], kinds: Sequence[str], rng: random.Random) -> str:
    """Six to sixteen sentences, some of them on lines of their own."""
    text = ""
    for number in range(rng.randint(6, 16)):
        separator = "" if number == 0 else "\n\n" if rng.random() < 0.08 else "\n" if rng.random() < 0.08 else " "
        text += separator + rng.choice(by_kind[rng.choice(kinds)])
    return text


def shout(text: str, rng: random.Random) -> str:
    """Write a word of the text, or all of it, in capitals."""
    if rng.random() < 0.4:
        return text.upper()
    parts = text.split(" ")
    index = rng.randrange(len(parts))
    return " ".join((*parts[:index], parts[index].upper(), *parts[index + 1 :]))


def typographic(text: str, rng: random.Random) -> str:
    """Write some texts with the characters of a typesetter instead of those of a typewriter."""
    if rng.random() >= TYPOGRAPHIC_SHARE:
        return text
    text = re.sub(r'"([^"]*)"', "“\\1”", text)
    text = text.replace("'", "’").replace("...", "…")
    return text.replace(" - ", rng.choice((" – ", " — ", "—")))
