"""Makes random sentences from a grammar file. The head of `everyday.english.grammar` explains the format."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Rule = Callable[[random.Random, str | None], str]  # (random numbers, form or None) -> a text in that form

_SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?\}")
_FIRST_LETTER = re.compile(r"\w")
_OPTION = re.compile(r" ?\[([^\[\]]*)\]")
_ARTICLE = re.compile(r"\b([Aa])<> (\w+)")
_VOWEL = re.compile(r"(?!uni|use|one\b|eu)[aeiou]|hour|honest", re.IGNORECASE)
_VERB_FORMS = ("s", "ed", "en", "ing")


class Grammar:
    def __init__(
        self, rules: Mapping[str, tuple[str, ...]], special: Mapping[str, Rule], joins: Sequence[tuple[str, str]] = ()
    ) -> None:
        """`special`: names whose text is made by code; they take precedence over rules of the same name. `joins`:
        (pattern, replacement) of words that change beside others, as in "de el" -> "del"."""
        self._rules = rules
        self._special = special
        self._joins = [(re.compile(pattern), replacement) for pattern, replacement in joins]

    @classmethod
    def load(cls, path: Path, special: Mapping[str, Rule]) -> "Grammar":
        rules, joins = {}, []
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("~ "):
                pattern, _, replacement = line.removeprefix("~ ").partition(" =>")
                joins.append((pattern, replacement.strip()))
            elif line and not line.startswith("#"):
                name, _, alternatives = line.partition(" = ")
                rules[name] = tuple(alternatives.split(" | "))
        return cls(rules, special, joins)

    def sentence(self, rng: random.Random, name: str = "sentence") -> str:
        text = _ARTICLE.sub(_article, self._expand(f"{{{name}}}", rng))
        for pattern, replacement in self._joins:
            text = pattern.sub(replacement, text)
        return _FIRST_LETTER.sub(lambda m: m[0].upper(), text, count=1)

    def _expand(self, pattern: str, rng: random.Random) -> str:
        pattern = _OPTION.sub(lambda m: m[0].replace("[", "").replace("]", "") if rng.random() < 0.5 else "", pattern)
        return _SLOT.sub(lambda m: self._slot(m[1], m[2], rng), pattern)

    def _slot(self, name: str, form: str | None, rng: random.Random) -> str:
        if name in ("a", "A"):
            return f"{name}<>"  # `_article` completes it when the next word is known
        if name in self._special:
            return self._special[name](rng, form)
        choice = rng.choice(self._rules[name])
        if "{" in choice:
            return self._expand(choice, rng)
        return inflect(choice, form)


def everyday_file(language: str) -> Path:
    return Path(__file__).with_name(f"everyday.{language}.grammar")


def inflect(word: str, form: str | None) -> str:
    """Return a form of `word`, which is regular or lists its forms: singular/plural or, of a verb, base/s/ed/en/ing."""
    base, *irregular = word.split("/")
    if len(irregular) == len(_VERB_FORMS):
        # The particle of a verb follows its last form: give/gives/gave/given/giving away.
        irregular[-1], space, particle = irregular[-1].partition(" ")
        return (base if form is None else irregular[_VERB_FORMS.index(form)]) + space + particle
    if form is None:
        return base
    return irregular[0] if irregular else _regular(base, form)


def _regular(word: str, form: str) -> str:
    match form:
        case "s":
            return word + ("es" if re.search(r"(s|x|z|ch|sh)$", word) else "s")
        case "ed" | "en":
            return re.sub(r"[^aeiou]y$", lambda m: m[0][0] + "i", word.removesuffix("e")) + "ed"
        case "ing":
            return word.removesuffix("e") + "ing"
        case "er" | "est":
            return _compared(word, form)
    raise ValueError(f"{word!r} has no form {form!r}")


def _compared(adjective: str, form: str) -> str:
    if len(adjective) > 6 or adjective.endswith(("ed", "ful", "ing", "al")):
        return ("more " if form == "er" else "most ") + adjective
    return re.sub(r"y$", "i", adjective.removesuffix("e")) + form


def _article(match: re.Match[str]) -> str:
    return f"{match[1]}{'n' if _VOWEL.match(match[2]) else ''} {match[2]}"
