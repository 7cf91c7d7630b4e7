"""The folder of stored voices, as files:

    voices.sqlite3           the database; a row makes a file a voice
    voices.reserve           some kilobytes, given up on a full disk so that voices can still be deleted
    files/<32 hex digits>-<owner>.safetensors
    files/....safetensors.part    a file that is just being stored or deleted

Nobody is told that a voice is stored before its file has lost `.part`, or that it is deleted while its file has its
name. So a `.part` without a row is of nobody, whichever copy of the database has been put back, and it is the only kind
of file that is ever deleted without being asked to. Methods raise OSError.
"""

import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

DATABASE = "voices.sqlite3"
FILES = "files"
RESERVE = "voices.reserve"
RESERVE_BYTES = 128 * 1024  # a deletion writes some pages of 4 KiB
_STEP_BYTES = 4096
_BESIDE = ("", "-wal", "-shm")  # what SQLite keeps of a database
_NAME = re.compile(r"[0-9a-f]{32}(?:-(?P<owner>[^/]*))?\.safetensors")  # without the owner: its name is too long
_PART = ".part"
_MAX_OWNER_BYTES = 190  # file names have at most 255


def new_name(owner: str) -> str:
    """Return a name that no other file ever has. It says the owner, so that a lost database can be made again."""
    said = quote(owner, safe=" ")
    return f"{secrets.token_hex(16)}{f'-{said}' if len(said) <= _MAX_OWNER_BYTES else ''}.safetensors"


def owner_in(name: str) -> str | None:
    """Return the owner that a file's name says, or None if it says none."""
    found = _NAME.fullmatch(name)
    owner = found["owner"] if found else None
    return None if owner is None else unquote(owner)


class VoiceFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / DATABASE
        self._files = path / FILES
        self._reserve = path / RESERVE

    def create(self) -> None:
        """Create what is missing. Nobody but this user may read the voices, whatever the folder's own mode."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._files.mkdir(exist_ok=True, mode=0o700)
        os.close(os.open(self.database, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its other files the same mode
        for path in self._of_database():
            found = path.stat()
            if found.st_mode & 0o077 and found.st_uid == os.geteuid():
                path.chmod(0o600)

    @property
    def has_database(self) -> bool:
        return self.database.is_file() and self.database.stat().st_size > 0

    @property
    def has_log(self) -> bool:
        """Whether SQLite's log is there: while the database is open, and after a crash."""
        return self.database.with_name(f"{DATABASE}-wal").exists()

    def names(self) -> set[str]:
        """Return the names of all files that look like voices, without those just being stored or deleted."""
        return {name for name in self._listing() if _NAME.fullmatch(name)}

    def moving(self) -> set[str]:
        """Return the names of the files that are just being stored or deleted, without `.part`."""
        return {name for name in (each.removesuffix(_PART) for each in self._parts()) if _NAME.fullmatch(name)}

    def has_foreign_files(self) -> bool:
        known = self.names() | {f"{name}{_PART}" for name in self.moving()}
        return not known.issuperset(self._listing())

    def read(self, name: str) -> bytes:
        for path in (self._path(name), self._part(name)):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                continue
        return self._path(name).read_bytes()  # it may have got its name between the two looks

    def write(self, name: str, data: bytes) -> None:
        """Write a file durably, as one that is just being stored."""
        with os.fdopen(os.open(self._part(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._sync()

    def keep(self, names: Iterable[str]) -> None:
        """Give files their names: their rows stay. Another process may have done that already."""
        for name in names:
            if not self._path(name).exists():
                with suppress(FileNotFoundError):
                    self._part(name).rename(self._path(name))
        self._sync()

    def let_go(self, names: Iterable[str]) -> None:
        """Take the names from files whose rows are just being deleted."""
        for name in names:
            with suppress(FileNotFoundError):  # a damaged voice can be deleted, too
                self._path(name).rename(self._part(name))
        self._sync()

    def drop(self, names: Iterable[str]) -> None:
        """Delete files that have no row; of those, only what has no name either."""
        for name in names:
            self._part(name).unlink(missing_ok=True)

    def refill_reserve(self) -> None:
        """Take up as much of the reserve as there is room for."""
        try:
            descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                for start in range(os.fstat(descriptor).st_size, RESERVE_BYTES, _STEP_BYTES):
                    os.posix_fallocate(descriptor, start, _STEP_BYTES)
            finally:
                os.close(descriptor)
        except OSError:
            pass  # the disk is full, and the next deletion tries again

    def give_up_reserve(self) -> bool:
        """Return whether there was one."""
        try:
            self._reserve.unlink()
        except FileNotFoundError:
            return False
        return True

    def _of_database(self) -> list[Path]:
        return [path for path in (self.path / f"{DATABASE}{end}" for end in _BESIDE) if path.exists()]

    def _listing(self) -> list[str]:
        try:
            return os.listdir(self._files)
        except FileNotFoundError:
            return []

    def _parts(self) -> list[str]:
        return [name for name in self._listing() if name.endswith(_PART)]

    def _path(self, name: str) -> Path:
        return self._files / name

    def _part(self, name: str) -> Path:
        return self._files / f"{name}{_PART}"

    def _sync(self) -> None:
        descriptor = os.open(self._files, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
