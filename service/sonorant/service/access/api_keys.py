"""API keys: which caller a key belongs to, and that caller's limits. Knows files and hashes, but no gRPC.

The file has one table per caller, and hashes instead of keys:

    [agent]
    sha256 = "d2b2..."       # of the key; `sonorant-server new-key agent` makes both
    max_sessions = 20        # at the same time; the rest is optional
    max_text_chars = 1000    # per utterance
    max_text_chars_per_minute = 20000
    max_voices = 10          # stored voices of its own; 0 = none
    text_format = "markdown" # of requests that name none; else plain
    max_buffer_delay_ms = 200 # of sessions that name none: how long text waits for more
    voices = ["serena"]      # only these, its own stored voices included; and no voice data sent with a request

A fault in the file never widens access, and never keeps a key alive that was taken out: see `ApiKeys.reload`.

Keys are random and 256 bits long. They cannot be guessed, so one round of SHA-256 is enough.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonorant.hosting.versions import version_of
from sonorant.service.errors import Unauthenticated
from sonorant.service.text.formats import TextFormat
from sonorant.service.text.segmenter import BUFFER_DELAYS_MS
from sonorant.settings.sources import similar

log = logging.getLogger(__name__)

MAX_NAME_CHARS = 64
MAX_FILE_BYTES = 16 * 1024 * 1024


class ApiKeysError(Exception):
    """The file cannot be used; the message names the file and the caller's table, and says what to do."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Someone who calls, and their limits; None = only the server's limit applies."""

    name: str
    max_sessions: int | None = None
    max_text_chars: int | None = None
    max_text_chars_per_minute: int | None = None
    max_voices: int | None = None
    voices: frozenset[str] | None = None
    text_format: TextFormat = TextFormat.PLAIN  # of requests that name none
    max_buffer_delay_ms: int | None = None  # of sessions that name none
    sha256: bytes = b""  # of the key; empty without one
    host: str = ""  # of a caller without a key: where the call comes from; "" = this machine

    @property
    def limit_key(self) -> str:
        """Under which name this caller's places are counted; "" = this machine, such as a proxy, which may take all."""
        return self.name or self.host

    @property
    def number(self) -> int:
        """A hash of `limit_key`, the same in all processes; 0 for this machine."""
        return int.from_bytes(hashlib.blake2b(self.limit_key.encode(), digest_size=7).digest()) if self.limit_key else 0

    def may_use(self, voice_id: str) -> bool:
        return self.voices is None or voice_id in self.voices

    def text_limit(self, of_server: int) -> int:
        """Return the longest text of one utterance, in characters: at most the text of one minute."""
        limits = (of_server, self.max_text_chars, self.max_text_chars_per_minute)
        return min(limit for limit in limits if limit is not None)


ANYONE = Caller("")
HOSTS = 8  # without keys: how many hosts the places are shared among
_THIS_MACHINE = ("ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D", "unix:")


def anyone_at(peer: str) -> Caller:
    """Return the caller without a key at gRPC's "ipv4:10.0.0.3:50312". All connections of a host are one caller."""
    return ANYONE if peer.startswith(_THIS_MACHINE) else Caller("", host=peer.rpartition(":")[0])


def unknown_key() -> Unauthenticated:
    return Unauthenticated("API_KEY_UNKNOWN", "this server does not know the API key; it may have been replaced")


class ApiKeys:
    """The callers in a file, which `reload` reads again when it has changed."""

    def __init__(self, path: Path) -> None:
        """Raises ApiKeysError."""
        self._path = path
        self._version = version_of([path])
        self._callers, faults = _parsed(path, _read(path))
        if faults:
            raise ApiKeysError(faults[0])
        self._digests = {caller.sha256 for caller in self._callers}
        self.fault: str | None = None  # what is wrong with the file as it is now

    def __len__(self) -> int:
        return len(self._callers)

    def find(self, key: str) -> Caller | None:
        """Return the caller with this key, or None. The time this takes reveals nothing about the known keys."""
        digest = hashlib.sha256(key.encode(errors="surrogateescape")).digest()
        found = None
        for caller in self._callers:
            if hmac.compare_digest(caller.sha256, digest):
                found = caller
        return found

    def has(self, caller: Caller) -> bool:
        """Whether the file still has the key that this caller came with."""
        return caller.sha256 in self._digests

    def reload(self) -> None:
        """Read the file again if it has changed, and take over each table that is right.

        A known caller whose table is wrong stays, as it was, while the file still has its sha256. So a key that is
        taken out is refused from then on, whatever else is wrong. A file that cannot be read changes nothing.
        """
        version = version_of([self._path])
        if version == self._version:
            return
        self._version = version
        try:
            text = _read(self._path)
        except ApiKeysError as error:
            self.fault = str(error)
            log.error("the changed file of API keys cannot be used, the known keys stay valid: %s", error)
            return
        callers, faults = _parsed(self._path, text)
        if faults:
            callers += self._still_standing(text, callers)
        self._callers, self._digests = callers, {caller.sha256 for caller in callers}
        self.fault = faults[0] if faults else None
        if faults:
            log.error(
                "the changed file of API keys has %d faults; keys that it no longer has are refused: %s",
                *(len(faults), faults[0]),
                extra={"callers": len(callers)},
            )
        else:
            log.info("API keys were read again", extra={"callers": len(callers)})

    def _still_standing(self, text: str, callers: list[Caller]) -> list[Caller]:
        """Return the known callers without a right table of their own whose sha256 the file has outside comments."""
        standing = "\n".join(line.partition("#")[0] for line in text.lower().splitlines())
        names, digests = {caller.name for caller in callers}, {caller.sha256 for caller in callers}
        return [
            caller
            for caller in self._callers
            if caller.name not in names and caller.sha256 not in digests and caller.sha256.hex() in standing
        ]


def new_key(name: str) -> tuple[str, str]:
    """Return a new key and the table for it. Raises ApiKeysError if the name is invalid."""
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARS}}}", name):
        raise ApiKeysError(f"the name {name!r} must be 1 to {MAX_NAME_CHARS} letters, digits, - and _")
    key = secrets.token_urlsafe(32)
    return key, f'[{name}]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n'


def _read(path: Path) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe would hold up the event loop
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ApiKeysError(f"{path} is not a regular file; give the file with the keys' tables")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ApiKeysError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ApiKeysError(f"{path} has more than {MAX_FILE_BYTES} bytes, which is no file of keys")
    return data.decode("utf-8-sig", errors="replace")


def _parsed(path: Path, text: str) -> tuple[list[Caller], list[str]]:
    """Return the callers whose tables are right, and a sentence for each fault."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return [], [f"{path} is not TOML: {error}"]
    if not tables:
        return [], [f"{path} has no keys, so nobody can call; add what `sonorant-server new-key NAME` prints"]
    callers: dict[bytes, Caller] = {}
    doubled: set[bytes] = set()
    faults = []
    for name, table in tables.items():
        try:
            caller = _caller(f"{path}, [{name}]", name, table)
        except ApiKeysError as error:
            faults.append(str(error))
            continue
        if callers.setdefault(caller.sha256, caller) is not caller:
            doubled.add(caller.sha256)
            faults.append(f"{path} has the same sha256 twice, the second time in [{name}]; give it a key of its own")
    return [caller for digest, caller in callers.items() if digest not in doubled], faults


def _caller(where: str, name: str, table: Any) -> Caller:
    if not isinstance(table, dict) or not name or len(name) > MAX_NAME_CHARS:
        raise ApiKeysError(f"{where}: each caller needs a table with a name of at most {MAX_NAME_CHARS} characters")
    limits = ("max_sessions", "max_text_chars", "max_text_chars_per_minute", "max_voices")
    known = ("sha256", *limits, "text_format", "max_buffer_delay_ms", "voices")
    if unknown := sorted(set(table) - set(known)):
        raise ApiKeysError(
            f"{where}: unknown {', '.join(unknown)}{similar(unknown[0], known)}; the known keys are {', '.join(known)}"
        )
    digest, voices = table.get("sha256"), table.get("voices")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise ApiKeysError(f"{where}: sha256 must be the 64 hex digits that `sonorant-server new-key {name}` prints")
    for limit in limits:
        least = 0 if limit == "max_voices" else 1
        if limit in table and (type(table[limit]) is not int or table[limit] < least):
            raise ApiKeysError(f"{where}: {limit} must be a whole number of at least {least}, not {table[limit]!r}")
    if voices is not None and not (isinstance(voices, list) and voices and all(isinstance(v, str) for v in voices)):
        raise ApiKeysError(f"{where}: voices must be a list of voice ids, not {voices!r}")
    formats = [each.value for each in TextFormat]
    if (text_format := table.get("text_format", TextFormat.PLAIN.value)) not in formats:
        raise ApiKeysError(f"{where}: text_format must be one of {', '.join(formats)}, not {text_format!r}")
    delay_ms = table.get("max_buffer_delay_ms")
    if delay_ms is not None and (type(delay_ms) is not int or delay_ms not in BUFFER_DELAYS_MS):
        within = f"{BUFFER_DELAYS_MS.start} to {BUFFER_DELAYS_MS.stop - 1}"
        raise ApiKeysError(f"{where}: max_buffer_delay_ms must be a whole number of {within}, not {delay_ms!r}")
    allowed = None if voices is None else frozenset(voice.lower() for voice in voices)
    own: dict[str, Any] = {limit: table.get(limit) for limit in limits}
    return Caller(
        name,
        **own,
        voices=allowed,
        text_format=TextFormat(text_format),
        max_buffer_delay_ms=delay_ms,
        sha256=bytes.fromhex(digest),
    )
