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
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sonorant.service.database import Database, DatabaseGone, PsycopgMissing
from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.voices import store
from sonorant.service.voices.dictionary_table import SCHEMA as DICTIONARIES
from sonorant.service.voices.dictionary_table import Execute
from sonorant.service.voices.file import VoiceAbout
from sonorant.service.voices.store import RequestKey, StoredVoice, VoiceLimits

log = logging.getLogger(__name__)

T = TypeVar("T")

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
_failures = partial(store.failures, DatabaseGone, ValueError)


class PostgresVoices(store.VoiceStore):
    _TABLE = "sonorant_voices"
    _FILE_BYTES = "length(data)"

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        """A database that cannot be reached now is tried again later. Raises VoiceStoreFailed without psycopg."""
        super().__init__(clock)
        try:
            self._database = Database(url, _set_up)
            self._database.run(lambda connection: None)
        except PsycopgMissing as error:
            raise VoiceStoreFailed(str(error)) from error
        except DatabaseGone as error:
            log.error("the database of stored voices cannot be reached, only presets can speak meanwhile: %s", error)

    def add(
        self, owner: str, about: VoiceAbout, file: bytes, request: RequestKey | None, limits: VoiceLimits
    ) -> StoredVoice:
        voice = StoredVoice(about, f"{secrets.token_hex(16)}.safetensors", hashlib.sha256(file).digest())

        def keep(execute: Execute) -> StoredVoice:
            execute("DELETE FROM sonorant_voices WHERE expire_s <= ?", [self._clock()])
            if made := self._repeated(execute, owner, request):
                return made
            # The row is there already if our commit succeeded and its answer was lost.
            if not execute("SELECT 1 FROM sonorant_voices WHERE file = ?", [voice.file]):
                self._check_room(execute, owner, about.voice_id, len(file), limits)
                self._insert(execute, owner, voice, request, file)
            return voice

        return self.run(keep, writes=True)

    def load(self, voice: StoredVoice) -> bytes | None:
        statement = "SELECT data FROM sonorant_voices WHERE file = ?"
        rows = self.run(lambda execute: execute(statement, [voice.file]), writes=False)
        return store.checked(rows[0][0], voice) if rows else None

    def run(self, work: Callable[[Execute], T], *, writes: bool) -> T:
        """`writes`: one after another with the others that say so, by the lock."""

        def on(connection: Any) -> T:
            if writes:
                _lock(connection)
            return work(lambda statement, values: _fetched(connection.execute(statement.replace("?", "%s"), values)))

        with _failures():
            done: T = self._database.run(on)
            return done

    def close(self) -> None:
        self._database.close()

    def _delete(self, condition: str, *values: object) -> list[float | None]:
        statement = f"DELETE FROM sonorant_voices WHERE {condition} RETURNING expire_s"
        # Without the lock of those that add: a deletion counts nothing, and breaks no limit.
        return [expire_s for (expire_s,) in self.run(lambda execute: execute(statement, values), writes=False)]


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
