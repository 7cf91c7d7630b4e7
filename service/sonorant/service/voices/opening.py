"""Opens the store of voices: a folder on this host, or a database that several servers share."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from sonorant.service.voices.postgres_store import PostgresVoices
from sonorant.service.voices.sqlite_store import DATABASE, VoiceRegistry

Store = VoiceRegistry | PostgresVoices
SCHEMES = ("postgresql://", "postgres://")


def opener(folder: Path | None, url: str | None) -> Callable[[], Store] | None:
    """Return a function that opens the store for the thread that calls it, or None if no voices are kept.

    At most one of `folder` and `url` is given.
    """
    if url is not None:
        return partial(PostgresVoices, url)
    return partial(VoiceRegistry, folder) if folder is not None else None


class NoVoicesHere(Exception):
    """No server keeps voices in this folder: its name is probably wrong."""


def open_kept(place: str) -> Store:
    """Open an existing store; `open_named` would create a missing one. Raises NoVoicesHere and VoiceStoreFailed."""
    if not place.startswith(SCHEMES) and not (Path(place) / DATABASE).is_file():
        raise NoVoicesHere(
            f"no voices are kept in {place}; give the folder of --voices-dir, or the URL of --voices-url"
        )
    return open_named(place)


def open_named(place: str) -> Store:
    """Open the store at a folder or URL, and create it if it is missing. Raises VoiceStoreFailed."""
    return PostgresVoices(place) if place.startswith(SCHEMES) else VoiceRegistry(Path(place))
