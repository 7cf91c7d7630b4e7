"""Remembers in a folder which of its files are finished, and of what, so that a job can go on where it stopped."""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

NAME = "finished.jsonl"  # a line for each file: its name, and what it was made of


def digest(*parts: bytes) -> str:
    """Return a short name for what a file is made of."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little") + part)
    return hashed.hexdigest()[:32]


class Finished:
    """A file counts as finished if it is there and was noted. It is noted before it gets its name, so whatever has its
    name and was not noted is somebody else's."""

    def __init__(self, folder: Path, file: TextIO) -> None:
        self._folder = folder
        self._file = file
        self._noted: dict[str, str] = {}
        text = file.read()
        for line in text.splitlines():
            with suppress(ValueError, LookupError, TypeError):  # cut off, as the job was killed or the disk was full
                noted = json.loads(line)
                self._noted[str(noted["file"])] = str(noted["made_of"])
        if text and not text.endswith("\n"):
            file.write("\n")

    def has(self, name: str, made_of: str) -> bool:
        """Return whether the file is there. Raises ValueError if it is there and was made of something else."""
        if not (self._folder / name).exists():
            return False
        if self._noted.get(name) != made_of:
            raise ValueError(
                f"{self._folder / name} exists and was not made from this text with these settings; use another "
                "--out-dir, or --overwrite to replace it"
            )
        return True

    def note(self, name: str, made_of: str) -> None:
        """Note that the file is finished, just before it gets its name."""
        self._file.write(json.dumps({"file": name, "made_of": made_of}) + "\n")
        self._file.flush()
        self._noted[name] = made_of


@contextmanager
def finished_in(folder: Path) -> Iterator[Finished]:
    """Open the memory of a folder, which is made if need be. Raises ValueError if another job is writing there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / NAME).open("a+", encoding="utf-8") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"another sonorant say writes into {folder}; wait for it, or stop it") from None
        file.seek(0)
        yield Finished(folder, file)
