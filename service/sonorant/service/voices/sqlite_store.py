"""Stored voices in a folder: a SQLite database, and beside it one file per voice with its tensors.

Durability: a file is written and synced before its row is inserted, the row is committed with a full sync, and only
then the file gets its name. So a voice is there as a whole or not at all, whatever is killed and when. The next process
that opens the folder finishes what a killed one began, as the file's name says (`folder.py`), within a write
transaction, of which SQLite allows one at a time among all processes. Nothing else is deleted without a request: a file
without a row may belong to a database that was lost.

A `VoiceRegistry` belongs to the thread that made it. Any number may be open on a folder, in any processes of one host.
"""

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sonorant.service.errors import VoiceDamaged, VoiceStoreFailed
from sonorant.service.voices import store
from sonorant.service.voices.dictionary_table import SCHEMA as DICTIONARIES
from sonorant.service.voices.dictionary_table import Execute
from sonorant.service.voices.file import VoiceAbout
from sonorant.service.voices.folder import FILES, VoiceFolder, new_name
from sonorant.service.voices.sqlite_opening import Use, connect, explained, is_full, lost
from sonorant.service.voices.store import RequestKey, StoredVoice, VoiceLimits

T = TypeVar("T")

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
_failures = partial(store.failures, sqlite3.Error, OSError, ValueError)


class VoiceRegistry(store.VoiceStore):
    _TABLE = "voices"
    _FILE_BYTES = "file_bytes"

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, use: Use = Use.KEEP) -> None:
        """Raises VoiceStoreFailed, with a sentence for the operator."""
        super().__init__(clock)
        self._folder = VoiceFolder(folder)
        self._db = connect(self._folder, use)
        try:
            with explained(self._folder):
                if use is Use.READ:
                    self._check_version()
                    return
                with self._transaction("IMMEDIATE"):
                    self._set_up(use)
                    self._db.execute(DICTIONARIES)  # folders of earlier versions have none
                    self._finish_moves()
                self._folder.refill_reserve()
        except BaseException:
            self._db.close()
            raise

    def add(
        self, owner: str, about: VoiceAbout, file: bytes, request: RequestKey | None, limits: VoiceLimits
    ) -> StoredVoice:
        self._delete("expire_s <= ?", self._clock())
        voice = StoredVoice(about, new_name(owner), hashlib.sha256(file).digest())

        def keep(execute: Execute) -> StoredVoice:
            if made := self._repeated(execute, owner, request):
                return made
            self._check_room(execute, owner, about.voice_id, len(file), limits)
            self._folder.write(voice.file, file)
            self._insert(execute, owner, voice, request, len(file))
            return voice

        with _failures():
            try:
                kept = self.run(keep, writes=True)
            except BaseException:
                self._folder.drop([voice.file])
                raise
            if kept is voice:
                self._folder.keep([voice.file])
        return kept

    def load(self, voice: StoredVoice) -> bytes | None:
        with _failures():
            try:
                data = self._folder.read(voice.file)
            except FileNotFoundError:
                if self._db.execute("SELECT 1 FROM voices WHERE file = ?", (voice.file,)).fetchone() is None:
                    return None
                raise VoiceDamaged(voice.about.voice_id, "its file is missing") from None
        return store.checked(data, voice)

    def run(self, work: Callable[[Execute], T], *, writes: bool) -> T:
        def execute(statement: str, values: Sequence[object]) -> list[Any]:
            return self._db.execute(statement, values).fetchall()

        with _failures(), self._transaction("IMMEDIATE" if writes else "DEFERRED"):
            return work(execute)

    def check(self) -> tuple[int, list[str]]:
        """Also looks for damage of the database, and for files that it does not know."""
        with explained(self._folder):
            if damages := [said for (said,) in self._db.execute("PRAGMA quick_check(1)") if said != "ok"]:
                raise sqlite3.DatabaseError(damages[0])
        num_voices, damages = super().check()
        return num_voices, [*damages, *filter(None, [self.warning()])]

    def warning(self) -> str | None:
        if not (num_files := len(self.unlisted())):
            return None
        return (
            f"the database does not know {num_files} of the files in {self._folder.path / FILES}; it may be older than "
            "they are. Nothing was changed. To have these voices back: "
            f"sonorant-server voices rebuild {self._folder.path}"
        )

    def unlisted(self) -> list[str]:
        """Return the names of the files of voices that the database does not know, in order."""
        with _failures():
            names = self._folder.names()
            names.difference_update(file for (file,) in self._db.execute("SELECT file FROM voices"))
            return sorted(names & self._folder.names())  # others may have been deleted meanwhile

    def read(self, name: str) -> bytes:
        with _failures():
            return self._folder.read(name)

    def adopt(self, owner: str, name: str, about: VoiceAbout) -> bool:
        """Make a file that the database does not know a voice. Return whether the owner has no other of this id."""

        def insert(execute: Execute) -> bool:
            data = self._folder.read(name)
            if execute("SELECT 1 FROM voices WHERE owner = ? AND voice_id = ?", [owner, about.voice_id]):
                return False
            voice = StoredVoice(about, name, hashlib.sha256(data).digest())
            self._insert(execute, owner, voice, None, len(data))
            return True

        return self.run(insert, writes=True)

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

    def _set_up(self, use: Use) -> None:
        if self._check_version():
            return
        if use is not Use.REBUILD and (names := self._folder.names()):
            raise lost(self._folder, len(names))
        for statement in filter(str.strip, _SCHEMA.split(";")):
            self._db.execute(statement)
        self._db.execute(f"PRAGMA user_version = {VERSION}")

    def _check_version(self) -> int:
        version: int
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise VoiceStoreFailed(
                f"{self._folder.path} was made by another version of this server (schema {version}); use that one"
            )
        return version

    def _finish_moves(self) -> None:
        """Finish what killed processes began: a file that was being stored or deleted is kept if there is a row."""
        if moving := self._folder.moving():
            known = moving.intersection(file for (file,) in self._db.execute("SELECT file FROM voices"))
            self._folder.keep(known)
            self._folder.drop(moving - known)

    def _delete(self, condition: str, *values: object) -> list[float | None]:
        """Delete voices, and return when each would have expired. This is possible on a full disk, too."""
        with _failures():
            if not self._db.execute(f"SELECT 1 FROM voices WHERE {condition}", values).fetchone():
                return []
            try:
                deleted = self._delete_rows(condition, values)
            except (sqlite3.OperationalError, OSError) as error:
                if not is_full(error) or not self._folder.give_up_reserve():
                    raise
                deleted = self._delete_rows(condition, values)
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # gives back what the log has grown by
            self._folder.drop(file for file, _ in deleted)
            self._folder.refill_reserve()
        return [expire_s for _, expire_s in deleted]

    def _delete_rows(self, condition: str, values: tuple[object, ...]) -> list[tuple[str, float | None]]:
        deleted: list[tuple[str, float | None]] = []
        try:
            with self._transaction("IMMEDIATE"):
                rows = self._db.execute(f"DELETE FROM voices WHERE {condition} RETURNING file, expire_s", values)
                deleted = rows.fetchall()
                self._folder.let_go(file for file, _ in deleted)
        except BaseException:
            self._folder.keep(file for file, _ in deleted)
            raise
        return deleted
