"""Words and sentences of other languages from free software: Debian's word lists, and the tales of a game, translated.

Debian: `apt install wspanish wfrench witalian wbrazilian wesnoth-1.16`. The Spanish list is in the public domain, the
others and Battle for Wesnoth have the GPL. Only the teacher speaks the texts; none is part of the checkpoint.
"""

import re
import struct
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from sonorant.training.text.sources import SourceMissing, plain_sentences

WORDS_DIR = Path("/usr/share/dict")
TALES_DIR = Path("/usr/share/games/wesnoth/1.16/locale")
_WORD_LISTS = {"spanish": "spanish", "french": "french", "italian": "italian", "portuguese": "brazilian"}
_LOCALES = {"spanish": "es", "french": "fr", "italian": "it", "portuguese": "pt_BR"}
OFTEN = 5  # so many times a word is written in small letters
# The interface, and lists of terms.
_NO_TALES = ("wesnoth.mo", "wesnoth-lib.mo", "wesnoth-editor.mo", "wesnoth-ai.mo")


def dictionary(language: str, folder: Path = WORDS_DIR) -> tuple[str, ...]:
    """Words without capitals, in the list's order."""
    path = folder / _WORD_LISTS[language]
    if not path.is_file():
        raise SourceMissing(f"{path} is missing; on Debian: apt install w{path.name}")
    words = unicodedata.normalize("NFC", path.read_text(encoding="utf-8")).split()
    return tuple(word for word in words if re.fullmatch(r"[^\W\d_]{1,15}", word) and word.islower())


def tale_sentences(language: str, words: Sequence[str], folder: Path = TALES_DIR) -> list[str]:
    """Sentences of what the game's people say and of what is told about them, if all their words are in `words` or are
    written small often: so there are no names, and nothing of another language."""
    passages = list(_passages(folder / _LOCALES[language] / "LC_MESSAGES"))
    counts = Counter(word for text in passages for word in re.findall(r"[^\W\d_]+", text))
    known = frozenset(words) | {word for word, count in counts.items() if word.islower() and count >= OFTEN}
    return [sentence for text in passages for sentence in plain_sentences(text, known)]


def _passages(folder: Path) -> Iterator[str]:
    files = sorted(file for file in folder.glob("*.mo") if file.name not in _NO_TALES)
    if not files:
        raise SourceMissing(f"no translations in {folder}; on Debian: apt install wesnoth-1.16")
    for file in files:
        data = file.read_bytes()
        _, _, count, _, table = struct.unpack_from("<5I", data)  # of the format of gettext's .mo files
        for number in range(1, count):  # the first entry is the file's own header
            length, start = struct.unpack_from("<2I", data, table + 8 * number)
            # A text that depends on a number has a variant for each, with a zero between.
            for text in data[start : start + length].decode().split("\0"):
                yield unicodedata.normalize("NFC", text).replace("\u2019", "'")
