"""Spells Spanish, French, Italian and Brazilian Portuguese in Kokoro's phones, by eSpeak NG (package misaki, on CPU).

eSpeak knows what a word sounds like among its neighbours ("les amis"), but does not say which of its words is which of
the text's: it joins some ("un'altra ora", "il y a") and makes many of a number. So each written word is also spelled
alone, and the words of a phrase are those groups of eSpeak's that sound most like them.
"""

import logging
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from sonorant.training.teachers.kokoro.phonemes import STRESS, Spelling, Word

VOICES: Mapping[str, str] = {"spanish": "es", "french": "fr-fr", "italian": "it", "portuguese": "pt-br"}
_MOST_OFF = 0.5  # edits for each phone of a phrase between its words alone and among their neighbours
_MOST_WORDS = 9  # of eSpeak's for one of the text's: a year
_MOST_JOINED = 4  # of the text's for one of eSpeak's
_JOIN_COST = 0.5  # so that words are joined, or one is split, only where that sounds more alike
_TOKEN = re.compile(r"\w+(?:[.,:'’/-]\w+)*|\n|\S")
_SPOKEN = re.compile(r"[\w%&+=@€$£°]")
_MARKS = str.maketrans({"«": "“", "»": "”", "–": "—"})  # as Kokoro knows them
_TYPED = str.maketrans({"’": "'"})
_GROUPED = re.compile(r"(?<=\d)\.(?=\d{3}(?!\d))")  # a point between the thousands of a number
_NUMBER = r"\d+(?:[. ]\d{3})*"


@dataclass(frozen=True, slots=True)
class _Token:
    begin: int  # characters of the text
    end: int
    said: str  # how it is told to eSpeak


class EspeakSpeller:
    """Spells one language."""

    def __init__(self, language: str) -> None:
        from misaki import espeak
        from phonemizer.backend import EspeakBackend

        quiet = logging.getLogger(f"{__name__}.phonemizer")
        quiet.setLevel(logging.CRITICAL)  # it warns of every phrase in which eSpeak joins words
        self._g2p = espeak.EspeakG2P(VOICES[language])
        # The package would cut numbers at their points and commas; the phrases here have no other punctuation.
        self._g2p.backend = EspeakBackend(
            VOICES[language],
            punctuation_marks="…",
            with_stress=True,
            tie="^",
            language_switch="remove-flags",
            logger=quiet,
        )
        self._rules = [(re.compile(pattern), said) for pattern, said in (*_SAID_EVERYWHERE, *_SAID[language])]
        self._alone = lru_cache(maxsize=100_000)(self._spelled_alone)

    def spell(self, text: str) -> Spelling | None:
        """Return the text's words; None if they cannot be told apart in a phrase."""
        words: list[Word] = []
        for is_phrase, tokens in groupby(self._tokens(text), lambda token: bool(_SPOKEN.search(token.said))):
            if not is_phrase:
                words += (Word(token.begin, token.end, token.said.translate(_MARKS)) for token in tokens)
            elif phrase := self._phrase(list(tokens)):
                words += phrase
            else:
                return None
        return tuple(words)

    def _tokens(self, text: str) -> list[_Token]:
        """Words, as they are said, and marks."""
        said: dict[int, _Token] = {}
        for pattern, replacement in self._rules:
            for match in pattern.finditer(text):
                said.setdefault(match.start(), _Token(*match.span(), match.expand(replacement)))
        tokens, place = [], 0
        for match in _TOKEN.finditer(text):
            if match.start() < place:
                continue
            token = said.get(match.start()) or _Token(*match.span(), match[0])
            tokens.append(_Token(token.begin, token.end, _GROUPED.sub("", token.said).translate(_TYPED)))
            place = token.end
        return tokens

    def _phrase(self, tokens: Sequence[_Token]) -> list[Word] | None:
        spoken = self._phones(" ".join(token.said for token in tokens)).split()
        alone = [self._alone(token.said).split() for token in tokens]
        if not spoken or not all(alone):
            return None
        groups = grouped(alone, spoken)
        if groups is None:
            return None
        words, token, word = [], 0, 0
        for num_tokens, num_words in groups:
            phones = " ".join(spoken[word : word + num_words])
            words.append(Word(tokens[token].begin, tokens[token + num_tokens - 1].end, phones))
            token, word = token + num_tokens, word + num_words
        return words

    def _spelled_alone(self, said: str) -> str:
        if len(said) == 1 and said.isalpha():  # as a word: alone, eSpeak says the name of the letter
            return unicodedata.normalize("NFD", said.lower())[0]
        return self._phones(said)

    def _phones(self, said: str) -> str:
        phones: str = self._g2p(said)[0]
        return phones


Groups = tuple[tuple[int, int], ...]  # (words of the text, words of eSpeak's)


def grouped(alone: Sequence[Sequence[str]], spoken: Sequence[str]) -> Groups | None:
    """The groups of a phrase that sound most alike; None if they sound too little alike. `alone`: eSpeak's words of
    each word of the text."""
    if len(alone) == 1:
        return ((1, len(spoken)),)
    if sum(map(len, alone)) == len(spoken):
        pairs = zip((word for words in alone for word in words), spoken, strict=True)
        if all(_distance(_plain(a), _plain(b)) <= max(1, _MOST_OFF * max(len(a), len(b))) for a, b in pairs):
            return tuple((1, len(words)) for words in alone)  # most phrases are like this
    return _most_alike(["".join(map(_plain, words)) for words in alone], [_plain(word) for word in spoken])


def _most_alike(alone: Sequence[str], spoken: Sequence[str]) -> Groups | None:
    best: dict[tuple[int, int], tuple[float, Groups]] = {(0, 0): (0.0, ())}
    sizes = [(1, 1), *((1, n) for n in range(2, _MOST_WORDS + 1)), *((n, 1) for n in range(2, _MOST_JOINED + 1))]
    for token in range(len(alone)):
        for word in range(len(spoken)):
            if (token, word) not in best:
                continue
            cost, groups = best[token, word]
            for num_tokens, num_words in sizes:
                to = token + num_tokens, word + num_words
                if to[0] > len(alone) or to[1] > len(spoken):
                    continue
                off = _distance("".join(alone[token : to[0]]), "".join(spoken[word : to[1]]))
                total = cost + off + _JOIN_COST * (num_tokens + num_words - 2)
                if to not in best or total < best[to][0]:
                    best[to] = total, (*groups, (num_tokens, num_words))
    cost, groups = best.get((len(alone), len(spoken)), (float("inf"), ()))
    return groups if cost <= _MOST_OFF * sum(map(len, spoken)) else None


def _plain(word: str) -> str:
    return "".join(phone for phone in word if phone not in STRESS)


@lru_cache(maxsize=100_000)
def _distance(a: str, b: str) -> int:
    """Levenshtein's."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


def _titles(*titles: str) -> tuple[str, str]:
    """Titles with their points, which end no sentence."""
    return rf"\b({'|'.join(titles)})\.(?=\s+\w)", r"\1."


# What eSpeak would say in another way, or not at all: (pattern, what it is told). Prices, hours, titles.
_SAID_EVERYWHERE = (
    (r"\.\.+", "…"),
    (r"\b(\d+)\.([ºª])", r"\1\2"),
    (r"\b(\d\d?)/(\d\d?)/(\d{4})\b", r"\1 \2 \3"),
    (r"\b(\d+)-(\d+)\b", r"\1 \2"),
)
_SAID: Mapping[str, Sequence[tuple[str, str]]] = {
    "spanish": (
        (rf"\b({_NUMBER}),(?!00)(\d\d) ?€", r"\1 euros con \2"),
        (rf"\b({_NUMBER})(?:,00)? ?€", r"\1 euros"),
        (r"\b(\d\d?):00\b", r"\1"),
        _titles("Sr", "Sra", "Dr", "Dra"),
    ),
    "french": (
        (rf"\b({_NUMBER}),(?!00)(\d\d) ?€", r"\1 euros \2"),
        (rf"\b({_NUMBER})(?:,00)? ?€", r"\1 euros"),
        (r"\b(\d\d?)(?: ?h ?|:)00\b", r"\1 heures"),
        (r"\b(\d\d?) ?h ?(\d\d)\b", r"\1 heures \2"),
        (r"\b(\d\d?) ?h\b", r"\1 heures"),
        (r"\b([02-9]|\d\d+)e\b", r"\1ème"),
        (r"\bM\.(?=\s+\w)", "monsieur"),
        (r"\b(\w+['’])?([Aa])ujourd['’]hui\b", r"\1\2ujourdhui"),  # behind d' it would be English
        (r"\b(\w+[sz])-y\b", r"\1-zi"),
    ),
    "italian": (
        (rf"\b({_NUMBER}),(?!00)(\d\d) ?€", r"\1 euro e \2"),
        (rf"\b({_NUMBER})(?:,00)? ?€", r"\1 euro"),
        (r"\b(\d\d?):00\b", r"\1"),
        (r"\b[Ss]ig\.(?=\s+\w)", "signor"),
        (r"\b[Dd]ott\.(?=\s+\w)", "dottor"),
        (r"\b[Dd]ott\.ssa\b", "dottoressa"),
    ),
    "portuguese": (
        (r"\b[Éé]\b(?! \w)", "éh"),  # at the end of a phrase, where eSpeak says the name of the letter
        (rf"R\$ ?({_NUMBER}),(?!00)(\d\d)\b", r"\1 reais e \2 centavos"),
        (rf"R\$ ?({_NUMBER})(?:,00)?", r"\1 reais"),
        (rf"\b({_NUMBER}),(?!00)(\d\d) ?€", r"\1 euros e \2"),
        (rf"\b({_NUMBER})(?:,00)? ?€", r"\1 euros"),
        (r"\b(\d\d?)(?: ?h ?|:)00\b", r"\1 horas"),
        (r"\b(\d\d?) ?h ?(\d\d)\b", r"\1 horas e \2"),
        (r"\b(\d\d?) ?h\b", r"\1 horas"),
        (r"\bSr\.(?=\s+\w)", "senhor"),
        (r"\bSra\.(?=\s+\w)", "senhora"),
        _titles("Dr", "Dra"),
    ),
}
