"""Opens the database in a folder of voices, and refuses one that is lost, with a sentence that says what to do."""

import errno
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.voices.folder import DATABASE, FILES, VoiceFolder

BUSY_TIMEOUT_S = 10.0  # how long to wait for the transactions of other processes
_CODES = {
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.EDQUOT: sqlite3.SQLITE_FULL,
    errno.EROFS: sqlite3.SQLITE_READONLY,
    errno.EACCES: sqlite3.SQLITE_PERM,
}


class Use(Enum):
    KEEP = auto()  # as servers do: read and write; a new folder becomes one of voices
    READ = auto()  # change nothing, whatever is found
    REBUILD = auto()  # read and write, and the database may be missing though files are there


def connect(folder: VoiceFolder, use: Use) -> sqlite3.Connection:
    """Raises VoiceStoreFailed."""
    with explained(folder):
        check(folder, use)
        if use is Use.READ:
            # Without a log nobody has the database open; then nothing, not even a lock file, is written.
            mode = "mode=ro" if folder.has_log else "mode=ro&immutable=1"
            address = f"{folder.database.absolute().as_uri()}?{mode}"
            return sqlite3.connect(address, timeout=BUSY_TIMEOUT_S, isolation_level=None, uri=True)
        try:
            return _opened(folder)
        except (sqlite3.Error, OSError) as error:
            if not is_full(error) or not folder.give_up_reserve():
                raise
            return _opened(folder)


def _opened(folder: VoiceFolder) -> sqlite3.Connection:
    folder.create()
    database = sqlite3.connect(folder.database, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        _write_ahead(database)
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA user_version").fetchone()  # reads the database, which needs a file of its own
    except BaseException:
        database.close()
        raise
    return database


def check(folder: VoiceFolder, use: Use) -> None:
    """Raise VoiceStoreFailed if the folder has files, but no database that could know them."""
    # Looked for in this order: another process that makes the folder now has the database before the other two.
    has_log, names, has_foreign_files = folder.has_log, folder.names(), folder.has_foreign_files()
    if folder.has_database:
        return
    if names and use is not Use.REBUILD:
        raise lost(folder, len(names))
    if has_foreign_files and not names:
        raise VoiceStoreFailed(
            f"{folder.path} is probably not the folder you mean: it has no {DATABASE}, and files in {FILES}/ that are "
            "no voices. Nothing was changed. Give the server another folder with --voices-dir"
        )
    if has_log and names:
        raise VoiceStoreFailed(
            f"{folder.database} is missing or empty, but its log is there and would be lost. Nothing was changed. Put "
            f"the database back from a backup, or move {DATABASE}-wal to another folder and rebuild again"
        )


def lost(folder: VoiceFolder, num_files: int) -> VoiceStoreFailed:
    return VoiceStoreFailed(
        f"the database {folder.database} is missing or empty, but the files of {num_files} voices are there. Nothing "
        "was changed. Put the database back from a backup, or make it from the files: "
        f"sonorant-server voices rebuild {folder.path}"
    )


def is_full(error: sqlite3.Error | OSError) -> bool:
    """Return whether a disk or a quota is full."""
    return _code(error) == sqlite3.SQLITE_FULL


@contextmanager
def explained(folder: VoiceFolder) -> Iterator[None]:
    """Turn failures to open or check the folder into VoiceStoreFailed, with what to do about them."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise VoiceStoreFailed(_advice(folder, error)) from None


def _code(error: sqlite3.Error | OSError) -> int:
    """Return SQLite's code, also for an error of the system."""
    if isinstance(error, OSError):
        return _CODES.get(error.errno or 0, sqlite3.SQLITE_IOERR)
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return sqlite3.SQLITE_FULL if code == sqlite3.SQLITE_IOERR_SHMSIZE else code & 0xFF


def _advice(folder: VoiceFolder, error: sqlite3.Error | OSError) -> str:
    match _code(error):
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return (
                f"the database {folder.database} is damaged ({error}). Nothing was changed, and the files of the "
                "voices are not touched. Put the database back from a backup; or move it, with the files whose names "
                f"begin with it, to another folder and make it anew: sonorant-server voices rebuild {folder.path}"
            )
        case sqlite3.SQLITE_FULL:
            return f"the disk of {folder.path} is full ({error}). Nothing was changed. Free some space, then try again"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            return (
                f"{folder.path} cannot be written ({error}). Nothing was changed. Mount it so that this user may write "
                "there, or give another folder with --voices-dir"
            )
    return f"cannot use {folder.path} for voices: {error}. Nothing was changed"


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
