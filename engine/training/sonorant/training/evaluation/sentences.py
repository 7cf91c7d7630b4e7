"""The sentences of the evaluation, which the text stage keeps out of training.

`python -m sonorant.training.evaluation.sentences everyday VOICE ...` (or `everyday.french`, `special`, `held-out`)
prints them in the form which `recite.py` reads: every everyday and special sentence in each voice, the others in one
voice after another.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_FOLDER = Path(__file__).parent


def everyday_sentences(language: str = "english") -> Sequence[str]:
    """Written by hand for the evaluation: 120 in English, of six to ten words each, and 40 in each other language."""
    return _FOLDER.joinpath(f"everyday.{language}.txt").read_text(encoding="utf-8").splitlines()


def held_out_sentences(languages: Iterable[str] = ("english",)) -> Sequence[tuple[str, str, str]]:
    """(language, kind, text) of 200 sentences from the sources of the English training text, and of the everyday
    sentences of the other languages, all languages evenly spread."""
    lines = [line.split("\t") for line in _FOLDER.joinpath("held_out.tsv").read_text(encoding="utf-8").splitlines()]
    listed = {"english": [("english", kind, text) for kind, text in lines]}
    for language in languages:
        if language != "english":
            listed[language] = [(language, "everyday", text) for text in everyday_sentences(language)]
    places = [(number / len(each), line) for each in listed.values() for number, line in enumerate(each)]
    return [line for _, line in sorted(places, key=lambda place: place[0])]


def special_sentences() -> Mapping[str, tuple[str, str]]:
    """Text -> (kind, the same as it is spoken): numbers, addresses, abbreviations, paragraphs, and alone: the sentences
    of these paragraphs."""
    lines = _FOLDER.joinpath("special.tsv").read_text(encoding="utf-8").splitlines()
    return {text: (kind, spoken) for kind, text, spoken in (line.split("\t") for line in lines)}


def main() -> None:
    match sys.argv[1:]:
        case [name, *voices] if voices and name.startswith("everyday"):
            language = name.partition(".")[2] or "english"
            lines = [(voice, text) for voice in voices for text in everyday_sentences(language)]
        case ["special", *voices] if voices:
            lines = [(voice, text) for voice in voices for text in special_sentences()]
        case ["held-out", *voices] if voices:
            lines = [(voices[i % len(voices)], text) for i, (_, _, text) in enumerate(held_out_sentences())]
        case _:
            sys.exit("name the sentences to print (everyday, special or held-out) and the voices that are to speak")
    print("\n".join(f"{voice}\t{text}" for voice, text in lines))


if __name__ == "__main__":
    main()
