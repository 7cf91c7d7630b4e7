"""Dictionaries for use on the event loop: kept where stored voices are, and joined for a request."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from sonorant.engine import LruCache
from sonorant.service.access.api_keys import Caller
from sonorant.service.errors import DictionaryNotFound, InvalidField, MethodNotServed
from sonorant.service.text.pronunciations import Lexicon, check_pronunciations
from sonorant.service.voices import dictionary_table as table
from sonorant.service.voices.dictionary_table import DictionaryVersion
from sonorant.service.voices.requests import check_voice_id
from sonorant.service.voices.stored import StoredVoices
from sonorant.tts.v1 import synthesis_pb2

MAX_PHRASES = 1000
MAX_CHARS = 65_536  # of all phrases and respellings of a dictionary
MAX_NAMED = 4  # in a request
CACHE_BYTES = 16 * 1024 * 1024
_BYTES_PER_PHRASE = 300  # of Python's objects, beside the characters
_NOT_KEPT = "this server keeps no dictionaries; start it with --voices-dir DIR, or send pronunciations in each request"

Named = tuple[Lexicon, tuple[tuple[str, int], ...]]  # with ids and versions


@dataclass(frozen=True, slots=True)
class _Joined:
    lexicon: Lexicon
    num_bytes: int


class Dictionaries:
    def __init__(self, stored: StoredVoices | None) -> None:
        """`stored`: None on a server that keeps nothing."""
        self._stored = stored
        self._cache: LruCache[tuple[tuple[str, str, int, float], ...], _Joined] = LruCache(CACHE_BYTES)

    async def newest(self, caller: Caller) -> list[DictionaryVersion]:
        if self._stored is None:
            return []
        return await self._stored.read(lambda execute: table.newest(execute, caller.name))

    async def find(self, caller: Caller, dictionary_id: str, version: int, path: str = "") -> DictionaryVersion:
        """Return a version; 0 = the newest one. `path`: of the field that names it. Raises DictionaryNotFound."""
        found = None
        if self._stored is not None:
            found = await self._stored.read(lambda execute: table.find(execute, caller.name, dictionary_id, version))
        if found is None:
            raise DictionaryNotFound(dictionary_id, version, path)
        return found

    async def versions(self, found: DictionaryVersion) -> list[int]:
        assert self._stored is not None, "it has found a version"
        return await self._stored.read(lambda execute: table.versions(execute, found.owner, found.dictionary_id))

    async def put(self, caller: Caller, dictionary_id: str, phrases: Mapping[str, str]) -> DictionaryVersion:
        """Keep the next version durably. Raises InvalidField, MethodNotServed and DictionaryQuotaReached."""
        if self._stored is None:
            raise MethodNotServed(_NOT_KEPT, "DICTIONARIES_NOT_KEPT")
        check_voice_id(dictionary_id, "dictionary_id")
        await asyncio.to_thread(check_phrases, phrases)
        text = json.dumps(dict(sorted(phrases.items())), ensure_ascii=False)
        return await self._stored.write(
            lambda execute: table.put(execute, caller.name, dictionary_id, text, len(phrases), time.time())
        )

    async def remove(self, caller: Caller, dictionary_id: str) -> bool:
        """Delete a dictionary and return whether there was one."""
        if self._stored is None:
            return False
        return await self._stored.write(lambda execute: table.remove(execute, caller.name, dictionary_id))

    async def named(self, config: synthesis_pb2.SynthesisConfig, path: str, caller: Caller) -> Named:
        """Return what the dictionaries say that a config names, and their versions. `path`: the config's, for errors.

        Raises InvalidField and DictionaryNotFound.
        """
        if not config.dictionaries:
            return Lexicon(), ()
        if len(config.dictionaries) > MAX_NAMED:
            message = f"{len(config.dictionaries)} dictionaries; at most {MAX_NAMED} can be named"
            raise InvalidField(f"{path}.dictionaries", message)
        found = [
            await self.find(caller, named.dictionary_id, named.version, f"{path}.dictionaries[{index}]")
            for index, named in enumerate(config.dictionaries)
        ]
        key = tuple((each.owner, each.dictionary_id, each.version, each.create_s) for each in found)
        joined = self._cache.get(key)
        if joined is None:
            # In a thread: thousands of phrases would hold up the event loop long enough for gaps in others' audio.
            joined = await asyncio.to_thread(_join, found)
            self._cache.put(key, joined)
        return joined.lexicon, tuple((each.dictionary_id, each.version) for each in found)


def check_phrases(phrases: Mapping[str, str]) -> None:
    """Raises InvalidField."""
    if not phrases:
        raise InvalidField("pronunciations", "empty; a dictionary has at least one phrase")
    num_chars = sum(len(phrase) + len(said) for phrase, said in phrases.items())
    if num_chars > MAX_CHARS:
        raise InvalidField("pronunciations", f"{num_chars} characters are over the limit of {MAX_CHARS}")
    check_pronunciations(phrases, "pronunciations", MAX_PHRASES)


def _join(found: list[DictionaryVersion]) -> _Joined:
    """Join dictionaries; of a phrase that is in several, the first one counts."""
    phrases: dict[str, str] = {}
    for each in reversed(found):
        phrases |= json.loads(each.phrases)
    num_bytes = 4 * sum(len(phrase) + len(said) for phrase, said in phrases.items()) + _BYTES_PER_PHRASE * len(phrases)
    return _Joined(check_pronunciations(phrases, "", len(phrases)), num_bytes)
