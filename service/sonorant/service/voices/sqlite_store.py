"""Stored voices in a folder: a SQLite database, and beside it one file per voice with its tensors.

Durability: a file is written, synced and renamed before its row is inserted, and the row is committed with a full sync.
So a voice is there as a whole or not at all, whatever is killed and when. All this happens within the write
transaction, of which SQLite allows one at a time among all processes. So its holder may delete any file without a row.

A `VoiceRegistry` belongs to the thread that made it. Any number may be open on a folder, in any processes of one host.
"""

import hashlib
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sonorant.service.errors import RequestIdReused, VoiceDamaged, VoiceExists, VoiceStoreFailed
from sonorant.service.voices.file import about_from_json, about_to_json
from sonorant.service.voices.limits import check_room
from sonorant.service.voices.store import OwnedVoice, RequestKey, StoredVoice, VoiceAbout, VoiceLimits

log = logging.getLogger(__name__)

DATABASE = "voices.sqlite3"
FILES = "files"
BUSY_TIMEOUT_S = 10.0  # how long to wait for the transactions of other processes
VERSION = 1  # of the schema

_SCHEMA = """
CREATE TABLE voices (
    owner TEXT NOT NULL,
    voice_id TEXT NOT NULL,
    about TEXT NOT NULL,
    expire_s REAL,
    request_id TEXT,
    request_digest BLOB,
    file TEXT NOT NULL,
    file_digest BLOB NOT NULL,
    file_bytes INTEGER NOT NULL,
    PRIMARY KEY (owner, voice_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX requests ON voices (owner, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX expiry ON voices (expire_s) WHERE expire_s IS NOT NULL;
"""
_LIVE = "(expire_s IS NULL OR expire_s > ?)"


class VoiceRegistry:
    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Creates what is missing, and deletes files that a killed process left. Raises VoiceStoreFailed."""
        self._clock = clock
        self._files = folder / FILES
        with _failures():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._files.mkdir(exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(folder / DATABASE, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            _write_ahead(self._db)
            self._db.execute("PRAGMA synchronous = FULL")
            with self._transaction("IMMEDIATE"):
                self._set_up(folder)
                self._remove_orphans()

    def find(self, owner: str, voice_id: str) -> StoredVoice | None:
        with _failures():
            row = self._one(f"owner = ? AND voice_id = ? AND {_LIVE}", owner, voice_id, self._clock())
            return _voice(row) if row else None

    def page(self, owner: str, after: str, fits: Callable[[VoiceAbout], bool], limit: int) -> list[StoredVoice]:
        found: list[StoredVoice] = []
        with _failures():
            rows = self._db.execute(
                f"SELECT about, file, file_digest FROM voices WHERE owner = ? AND voice_id > ? AND {_LIVE} "
                "ORDER BY voice_id",
                (owner, after, self._clock()),
            )
            for row in rows:
                voice = _voice(row)
                if fits(voice.about):
                    found.append(voice)
                if len(found) == limit:
                    break
            rows.close()
        return found

    def prepare(self, owner: str, voice_id: str, request: RequestKey | None, limits: VoiceLimits) -> StoredVoice | None:
        with _failures(), self._transaction("DEFERRED"):
            made = self._repeated(owner, request)
            if made is None:
                self._check_room(owner, voice_id, 0, limits)
            return made

    def add(
        self, owner: str, about: VoiceAbout, file: bytes, request: RequestKey | None, limits: VoiceLimits
    ) -> StoredVoice:
        self.remove_expired()
        voice = StoredVoice(about, f"{secrets.token_hex(16)}.safetensors", hashlib.sha256(file).digest())
        with _failures():
            try:
                with self._transaction("IMMEDIATE"):
                    if made := self._repeated(owner, request):
                        return made
                    self._check_room(owner, about.voice_id, len(file), limits)
                    self._write(voice.file, file)
                    self._insert(owner, voice, request, len(file))
            except BaseException:
                self._unlink([voice.file])
                raise
        return voice

    def load(self, voice: StoredVoice) -> bytes | None:
        with _failures():
            try:
                data = (self._files / voice.file).read_bytes()
            except FileNotFoundError:
                if self._db.execute("SELECT 1 FROM voices WHERE file = ?", (voice.file,)).fetchone() is None:
                    return None
                raise VoiceDamaged(voice.about.voice_id, "its file is missing") from None
        if hashlib.sha256(data).digest() != voice.file_digest:
            raise VoiceDamaged(voice.about.voice_id, "its file was changed")
        return data

    def remove(self, owner: str, voice_id: str) -> bool:
        with _failures():
            with self._transaction("IMMEDIATE"):
                rows = self._db.execute(
                    "DELETE FROM voices WHERE owner = ? AND voice_id = ? RETURNING file, expire_s", (owner, voice_id)
                ).fetchall()
            self._unlink(file for file, _ in rows)
        return any(expire_s is None or expire_s > self._clock() for _, expire_s in rows)

    def remove_expired(self) -> int:
        with _failures():
            if not self._db.execute("SELECT 1 FROM voices WHERE expire_s <= ?", (self._clock(),)).fetchone():
                return 0
            with self._transaction("IMMEDIATE"):
                rows = self._db.execute("DELETE FROM voices WHERE expire_s <= ? RETURNING file", (self._clock(),))
                files = [file for (file,) in rows]
            self._unlink(files)
        return len(files)

    def everything(self) -> Iterator[OwnedVoice]:
        """Yield all voices of all owners, as they are now."""
        with _failures():
            rows = self._db.execute(
                "SELECT about, file, file_digest, owner, request_id, request_digest FROM voices "
                f"WHERE {_LIVE} ORDER BY owner, voice_id",
                (self._clock(),),
            ).fetchall()
            voices = [
                OwnedVoice(row[3], _voice(row), RequestKey(row[4], row[5]) if row[4] is not None else None)
                for row in rows
            ]
        yield from voices

    def check(self) -> tuple[int, list[str]]:
        """Return the number of voices of all owners, and a sentence for each that is damaged."""
        with _failures():
            voices = [_voice(row) for row in self._db.execute("SELECT about, file, file_digest FROM voices")]
        damages = []
        for voice in voices:
            try:
                self.load(voice)
            except VoiceDamaged as error:
                damages.append(str(error))
        return len(voices), damages

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        """Run a transaction; an exception rolls it back. IMMEDIATE ones, which may write, run one at a time."""
        self._db.execute(f"BEGIN {kind}")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk may have ended it
                self._db.execute("ROLLBACK")
            raise

    def _set_up(self, folder: Path) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            raise VoiceStoreFailed(f"{folder} was made by another version of this server (schema {version})")

    def _remove_orphans(self) -> None:
        known = {file for (file,) in self._db.execute("SELECT file FROM voices")}
        orphans = [path.name for path in self._files.iterdir() if path.name not in known]
        self._unlink(orphans)
        if orphans:
            log.info("%d files without a voice were removed", len(orphans))

    def _one(self, condition: str, *values: object) -> tuple[str, str, bytes, bytes | None] | None:
        row: tuple[str, str, bytes, bytes | None] | None = self._db.execute(
            f"SELECT about, file, file_digest, request_digest FROM voices WHERE {condition}", values
        ).fetchone()
        return row

    def _repeated(self, owner: str, request: RequestKey | None) -> StoredVoice | None:
        if request is None:
            return None
        row = self._one(f"owner = ? AND request_id = ? AND {_LIVE}", owner, request.request_id, self._clock())
        if row is not None and row[3] != request.digest:
            raise RequestIdReused(request.request_id)
        return _voice(row) if row else None

    def _check_room(self, owner: str, voice_id: str, num_bytes: int, limits: VoiceLimits) -> None:
        now_s = self._clock()
        if self._one(f"owner = ? AND voice_id = ? AND {_LIVE}", owner, voice_id, now_s):
            raise VoiceExists(voice_id)
        num_voices, num_own, total = self._db.execute(
            f"SELECT count(*), coalesce(sum(owner = ?), 0), coalesce(sum(file_bytes), 0) FROM voices WHERE {_LIVE}",
            (owner, now_s),
        ).fetchone()
        check_room(limits, num_voices, num_own, total + num_bytes)

    def _insert(self, owner: str, voice: StoredVoice, request: RequestKey | None, num_bytes: int) -> None:
        about, of_request = voice.about, (request.request_id, request.digest) if request else (None, None)
        values = (owner, about.voice_id, about_to_json(about), about.expire_s)
        self._db.execute(  # it can only replace a voice that has expired just now
            "INSERT OR REPLACE INTO voices VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, *of_request, voice.file, voice.file_digest, num_bytes),
        )

    def _write(self, name: str, data: bytes) -> None:
        scratch = self._files / f"{name}.part"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(self._files / name)
        folder = os.open(self._files, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _unlink(self, names: Iterable[str]) -> None:
        for name in names:
            for path in (self._files / name, self._files / f"{name}.part"):
                path.unlink(missing_ok=True)


def _voice(row: tuple[object, ...]) -> StoredVoice:
    about, file, file_digest = row[:3]
    return StoredVoice(about_from_json(str(about)), str(file), bytes(file_digest))  # type: ignore[call-overload]


def _write_ahead(db: sqlite3.Connection) -> None:
    """Turn on write-ahead logging. Retries, as SQLite ignores its timeout here when several open a new database."""
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)


@contextmanager
def _failures() -> Iterator[None]:
    """Turn failures of the disk or database into VoiceStoreFailed. Their details go to the log alone."""
    try:
        yield
    except (sqlite3.Error, OSError, ValueError) as error:
        log.error("the stored voices cannot be read or written: %s", error)
        raise VoiceStoreFailed("the stored voices cannot be read or written now; the server's log says why") from error
