"""Opens the store of voices: a folder on this host, or a database that several servers share."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.voices.folder import VoiceFolder
from sonorant.service.voices.postgres_store import PostgresVoices
from sonorant.service.voices.sqlite_opening import Use, check
from sonorant.service.voices.sqlite_store import VoiceRegistry
from sonorant.service.voices.store import VoiceStore

SCHEMES = ("postgresql://", "postgres://")


def opener(folder: Path | None, url: str | None) -> Callable[[], VoiceStore] | None:
    """Return a function that opens the store for the thread that calls it, or None if no voices are kept.

    At most one of `folder` and `url` is given.
    """
    if url is not None:
        return partial(PostgresVoices, url)
    return partial(VoiceRegistry, folder) if folder is not None else None


class NoVoicesHere(Exception):
    """No server keeps voices in this folder: it is new, or its name is wrong."""


def open_to_read(place: str) -> VoiceStore:
    """Open an existing store without changing a folder. Raises NoVoicesHere and VoiceStoreFailed."""
    if place.startswith(SCHEMES):
        return PostgresVoices(place)
    folder = VoiceFolder(Path(place))
    if folder.path.is_dir():
        check(folder, Use.READ)
    if not folder.has_database:
        raise NoVoicesHere(
            f"no voices are kept in {place}; give the folder of --voices-dir, or the URL of --voices-url"
        )
    return VoiceRegistry(folder.path, use=Use.READ)


def check_writable(path: Path) -> None:
    """Raise VoiceStoreFailed if this user could not write into the folder, or make it. Changes nothing."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir():
        raise VoiceStoreFailed(f"{there} is not a folder; give another one with --voices-dir")
    if not os.access(there, os.W_OK | os.X_OK):
        raise VoiceStoreFailed(f"this user cannot write into {there}; change that, or give another folder")


def open_named(place: str) -> VoiceStore:
    """Open the store at a folder or URL, and create it if it is missing. Raises VoiceStoreFailed."""
    return PostgresVoices(place) if place.startswith(SCHEMES) else VoiceRegistry(Path(place))


def open_to_rebuild(path: Path) -> VoiceRegistry:
    """Open a folder of voices whose database may be missing. Raises NoVoicesHere and VoiceStoreFailed."""
    folder = VoiceFolder(path)
    if not path.is_dir() or (not folder.has_database and not folder.names()):
        raise NoVoicesHere(f"there are no voices in {path}; give the folder of --voices-dir")
    return VoiceRegistry(path, use=Use.REBUILD)
