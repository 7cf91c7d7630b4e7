"""A disk without room, for tests."""

from pathlib import Path


def fill(path: Path) -> None:
    """Take all the room that is left on a disk, in this file."""
    with path.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 1024)
        except OSError:
            pass
