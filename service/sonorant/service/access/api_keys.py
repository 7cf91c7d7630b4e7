"""API keys: who calls, and how much of the server is for them. Knows files and hashes, no gRPC.

The file has one table per caller, and hashes instead of keys:

    [agent]
    sha256 = "d2b2..."       # of the key; `sonorant-server new-key agent` makes both
    max_sessions = 20        # at the same time; the rest is optional
    max_text_chars = 1000    # per utterance
    max_text_chars_per_minute = 20000
    max_voices = 10          # of its own, kept on this server; 0 = none
    voices = ["serena"]      # no others: none sent along with a request, and of its own only those named here

Keys are random and 256 bits long, so that one round of SHA-256 is enough: there is nothing to guess.
"""

import hashlib
import hmac
import logging
import re
import secrets
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonorant.service.access.versions import version_of

log = logging.getLogger(__name__)

MAX_NAME_CHARS = 64


class ApiKeysError(Exception):
    """The file cannot be used; the message names it, the caller's table and what to do."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Someone with a key, and their limits; None = only those of the server."""

    name: str
    max_sessions: int | None = None
    max_text_chars: int | None = None
    max_text_chars_per_minute: int | None = None
    max_voices: int | None = None
    voices: frozenset[str] | None = None
    host: str = ""  # where who has no key calls from; "" = this machine, or nobody needs to know

    @property
    def counted_as(self) -> str:
        """Whose places are counted together; "" = of the machine itself, such as a proxy here, who may take all."""
        return self.name or self.host

    def may_use(self, voice_id: str) -> bool:
        return self.voices is None or voice_id in self.voices

    def text_limit(self, of_server: int) -> int:
        """Of one utterance; a minute's text may come at once, but no more of it."""
        limits = (of_server, self.max_text_chars, self.max_text_chars_per_minute)
        return min(limit for limit in limits if limit is not None)


ANYONE = Caller("")
HOSTS = 8  # without keys: among how many the last places are shared
_THIS_MACHINE = ("ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D", "unix:")


def anyone_at(peer: str) -> Caller:
    """Who calls without a key from gRPC's "ipv4:10.0.0.3:50312"; all connections of a host are one caller."""
    return ANYONE if peer.startswith(_THIS_MACHINE) else Caller("", host=peer.rpartition(":")[0])


class ApiKeys:
    """The callers of one file, read again whenever it changes."""

    def __init__(self, path: Path) -> None:
        """Raises ApiKeysError."""
        self._path = path
        self._version = version_of([path])
        self._callers = _load(path)

    def __len__(self) -> int:
        return len(self._callers)

    def find(self, key: str) -> Caller | None:
        """How long this takes says nothing about the keys there are."""
        digest = hashlib.sha256(key.encode(errors="surrogateescape")).digest()
        found = None
        for known, caller in self._callers:
            if hmac.compare_digest(known, digest):
                found = caller
        return found

    def reload(self) -> None:
        """Read the file again if it changed. One that cannot be used is logged, and what was known stays."""
        version = version_of([self._path])
        if version == self._version:
            return
        self._version = version
        try:
            self._callers = _load(self._path)
        except ApiKeysError as error:
            log.error("API keys are left as they were: %s", error)
        else:
            log.info("API keys were read again", extra={"callers": len(self._callers)})


def new_key(name: str) -> tuple[str, str]:
    """A key, and the table for it."""
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARS}}}", name):
        raise ApiKeysError(f"{name!r} is not a name of up to {MAX_NAME_CHARS} letters, digits, - and _")
    key = secrets.token_urlsafe(32)
    return key, f'[{name}]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n'


def _load(path: Path) -> list[tuple[bytes, Caller]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ApiKeysError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # neither UTF-8 nor TOML
        raise ApiKeysError(f"{path} is not TOML: {error}") from error
    callers = [_caller(f"{path}, [{name}]", name, table) for name, table in tables.items()]
    if not callers:
        raise ApiKeysError(f"{path} has no keys, so nobody could call; add what `sonorant-server new-key NAME` prints")
    if len({digest for digest, _ in callers}) < len(callers):
        raise ApiKeysError(f"{path} has the same sha256 twice; each caller needs a key of their own")
    return callers


def _caller(where: str, name: str, table: Any) -> tuple[bytes, Caller]:
    if not isinstance(table, dict) or not name or len(name) > MAX_NAME_CHARS:
        raise ApiKeysError(f"{where}: one table per caller is needed, named with at most {MAX_NAME_CHARS} characters")
    limits = ("max_sessions", "max_text_chars", "max_text_chars_per_minute", "max_voices")
    known = ("sha256", *limits, "voices")
    if unknown := sorted(set(table) - set(known)):
        raise ApiKeysError(f"{where}: unknown {', '.join(unknown)}; there are {', '.join(known)}")
    digest, voices = table.get("sha256"), table.get("voices")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise ApiKeysError(f"{where}: sha256 must be the 64 hex digits that `sonorant-server new-key {name}` prints")
    for limit in limits:
        least = 0 if limit == "max_voices" else 1
        if limit in table and (type(table[limit]) is not int or table[limit] < least):
            raise ApiKeysError(f"{where}: {limit} must be a whole number from {least}, not {table[limit]!r}")
    if voices is not None and not (isinstance(voices, list) and voices and all(isinstance(v, str) for v in voices)):
        raise ApiKeysError(f"{where}: voices must be a list of voice ids, not {voices!r}")
    allowed = None if voices is None else frozenset(voice.lower() for voice in voices)
    own: dict[str, Any] = {limit: table.get(limit) for limit in limits}
    return bytes.fromhex(digest), Caller(name, **own, voices=allowed)
