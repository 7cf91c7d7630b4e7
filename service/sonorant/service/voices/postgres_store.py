"""Stored voices in PostgreSQL, for several servers: a voice made on one of them can be used on all at once.

Each voice is one row, with its file: 10 to 30 KB. A voice is acknowledged only after the commit. Quotas hold for all
servers together: adding a voice holds a lock of the database until the commit. Ids are compared byte by byte, as in
SQLite.

A `PostgresVoices` belongs to the thread that made it.
"""

import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from sonorant.service.database import Database, DatabaseGone, PsycopgMissing
from sonorant.service.errors import RequestIdReused, VoiceExists, VoiceStoreFailed
from sonorant.service.voices import store
from sonorant.service.voices.dictionary_table import SCHEMA as DICTIONARIES
from sonorant.service.voices.dictionary_table import Execute
from sonorant.service.voices.file import about_from_json, about_to_json
from sonorant.service.voices.store import OwnedVoice, RequestKey, StoredVoice, VoiceAbout, VoiceLimits

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE = 500  # rows fetched at once
_LOCK = 0x536F6E6F72616E74  # key of the advisory lock for changes: any number that nobody else uses
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sonorant_voices (
    owner TEXT COLLATE "C" NOT NULL,
    voice_id TEXT COLLATE "C" NOT NULL,
    about TEXT NOT NULL,
    expire_s DOUBLE PRECISION,
    request_id TEXT COLLATE "C",
    request_digest BYTEA,
    file TEXT NOT NULL UNIQUE,
    file_digest BYTEA NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (owner, voice_id)
);
CREATE UNIQUE INDEX IF NOT EXISTS sonorant_requests ON sonorant_voices (owner, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS sonorant_expiry ON sonorant_voices (expire_s) WHERE expire_s IS NOT NULL;
"""
_LIVE = "(expire_s IS NULL OR expire_s > %s)"
_failures = partial(store.failures, DatabaseGone, ValueError)


class PostgresVoices:
    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        """A database that cannot be reached now is tried again later. Raises VoiceStoreFailed without psycopg."""
        self._clock = clock  # Unix time
        try:
            self._database = Database(url, _set_up)
            self._database.run(lambda connection: None)
        except PsycopgMissing as error:
            raise VoiceStoreFailed(str(error)) from error
        except DatabaseGone as error:
            log.error("the database of stored voices cannot be reached, only presets can speak meanwhile: %s", error)

    def find(self, owner: str, voice_id: str) -> StoredVoice | None:
        with _failures():
            row = self._one(f"owner = %s AND voice_id = %s AND {_LIVE}", owner, voice_id, self._clock())
            return _voice(row) if row else None

    def page(self, owner: str, after: str, fits: Callable[[VoiceAbout], bool], limit: int) -> list[StoredVoice]:
        found: list[StoredVoice] = []
        with _failures():
            while True:
                rows = self._rows(
                    "SELECT about, file, file_digest FROM sonorant_voices WHERE owner = %s AND voice_id > %s "
                    f"AND {_LIVE} ORDER BY voice_id LIMIT {PAGE}",
                    owner,
                    after,
                    self._clock(),
                )
                for row in rows:
                    voice = _voice(row)
                    after = voice.about.voice_id
                    if fits(voice.about):
                        found.append(voice)
                    if len(found) == limit:
                        return found
                if len(rows) < PAGE:
                    return found

    def prepare(self, owner: str, voice_id: str, request: RequestKey | None, limits: VoiceLimits) -> StoredVoice | None:
        def look(connection: Any) -> StoredVoice | None:
            made = self._repeated(connection, owner, request)
            if made is None:
                self._check_room(connection, owner, voice_id, 0, limits)
            return made

        with _failures():
            found: StoredVoice | None = self._database.run(look)
            return found

    def add(
        self, owner: str, about: VoiceAbout, file: bytes, request: RequestKey | None, limits: VoiceLimits
    ) -> StoredVoice:
        voice = StoredVoice(about, f"{secrets.token_hex(16)}.safetensors", hashlib.sha256(file).digest())

        def keep(connection: Any) -> StoredVoice:
            _lock(connection)
            connection.execute("DELETE FROM sonorant_voices WHERE expire_s <= %s", (self._clock(),))
            if made := self._repeated(connection, owner, request):
                return made
            # The row is there already if our commit succeeded and its answer was lost.
            known = connection.execute("SELECT 1 FROM sonorant_voices WHERE file = %s", (voice.file,)).fetchone()
            if known is None:
                self._check_room(connection, owner, about.voice_id, len(file), limits)
                row = (owner, about.voice_id, about_to_json(about), about.expire_s)
                of_request = (request.request_id, request.digest) if request else (None, None)
                connection.execute(
                    "INSERT INTO sonorant_voices VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                    (*row, *of_request, voice.file, voice.file_digest, file),
                )
            return voice

        with _failures():
            kept: StoredVoice = self._database.run(keep)
            return kept

    def load(self, voice: StoredVoice) -> bytes | None:
        with _failures():
            rows = self._rows("SELECT data FROM sonorant_voices WHERE file = %s", voice.file)
        if not rows:
            return None
        return store.checked(bytes(rows[0][0]), voice)

    def remove(self, owner: str, voice_id: str) -> bool:
        with _failures():
            rows = self._rows(
                "DELETE FROM sonorant_voices WHERE owner = %s AND voice_id = %s RETURNING expire_s", owner, voice_id
            )
        return any(expire_s is None or expire_s > self._clock() for (expire_s,) in rows)

    def run(self, work: Callable[[Execute], T], *, writes: bool) -> T:
        def on(connection: Any) -> T:
            if writes:
                _lock(connection)
            return work(lambda statement, values: _fetched(connection.execute(statement.replace("?", "%s"), values)))

        with _failures():
            done: T = self._database.run(on)
            return done

    def remove_expired(self) -> int:
        with _failures():
            return len(self._rows("DELETE FROM sonorant_voices WHERE expire_s <= %s RETURNING file", self._clock()))

    def everything(self) -> Iterator[OwnedVoice]:
        after = ("", "")
        while True:
            with _failures():
                rows = self._rows(
                    "SELECT about, file, file_digest, owner, voice_id, request_id, request_digest FROM sonorant_voices "
                    f"WHERE (owner, voice_id) > (%s, %s) AND {_LIVE} ORDER BY owner, voice_id LIMIT {PAGE}",
                    *after,
                    self._clock(),
                )
            for *row, owner, voice_id, request_id, digest in rows:
                request = RequestKey(request_id, bytes(digest)) if request_id is not None else None
                yield OwnedVoice(owner, _voice(row), request)
                after = (owner, voice_id)
            if len(rows) < PAGE:
                return

    def warning(self) -> str | None:
        return None  # files and rows are one

    def check(self) -> tuple[int, list[str]]:
        """Return the number of voices of all owners, and a sentence for each that is damaged."""
        with _failures():
            self._database.run(lambda connection: None)
        return store.damaged(self, (owned.voice for owned in self.everything()))

    def close(self) -> None:
        self._database.close()

    def _rows(self, statement: str, *values: object) -> list[Any]:
        rows: list[Any] = self._database.run(lambda connection: connection.execute(statement, values).fetchall())
        return rows

    def _one(self, condition: str, *values: object) -> Any:
        rows = self._rows(f"SELECT about, file, file_digest FROM sonorant_voices WHERE {condition}", *values)
        return rows[0] if rows else None

    def _repeated(self, connection: Any, owner: str, request: RequestKey | None) -> StoredVoice | None:
        if request is None:
            return None
        row = connection.execute(
            "SELECT about, file, file_digest, request_digest FROM sonorant_voices "
            f"WHERE owner = %s AND request_id = %s AND {_LIVE}",
            (owner, request.request_id, self._clock()),
        ).fetchone()
        if row is not None and bytes(row[3]) != request.digest:
            raise RequestIdReused(request.request_id)
        return _voice(row[:3]) if row else None

    def _check_room(self, connection: Any, owner: str, voice_id: str, num_bytes: int, limits: VoiceLimits) -> None:
        now_s = self._clock()
        is_there = f"SELECT 1 FROM sonorant_voices WHERE owner = %s AND voice_id = %s AND {_LIVE}"
        if connection.execute(is_there, (owner, voice_id, now_s)).fetchone():
            raise VoiceExists(voice_id)
        num_voices, num_own, total = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE owner = %s), coalesce(sum(length(data)), 0) FROM sonorant_voices "
            f"WHERE {_LIVE}",
            (owner, now_s),
        ).fetchone()
        store.check_room(limits, num_voices, num_own, int(total) + num_bytes)


def _lock(connection: Any) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))


def _set_up(connection: Any) -> None:
    if connection.execute("SELECT to_regclass('sonorant_voices')").fetchone()[0] is None:
        _lock(connection)
        connection.execute(_SCHEMA)
    if connection.execute("SELECT to_regclass('sonorant_dictionaries')").fetchone()[0] is None:
        _lock(connection)
        connection.execute(DICTIONARIES)


def _fetched(cursor: Any) -> list[Any]:
    rows: list[Any] = cursor.fetchall() if cursor.description else []
    return rows


def _voice(row: Any) -> StoredVoice:
    about, file, file_digest = row
    return StoredVoice(about_from_json(about), file, bytes(file_digest))
