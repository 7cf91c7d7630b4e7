"""Which store keeps the voices: a folder of this host, or a database that several servers share."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from sonorant.service.voices.postgres_store import PostgresVoices
from sonorant.service.voices.sqlite_store import DATABASE, VoiceRegistry

Store = VoiceRegistry | PostgresVoices
SCHEMES = ("postgresql://", "postgres://")


def opener(folder: Path | None, url: str | None) -> Callable[[], Store] | None:
    """What opens it, in whatever thread calls; None where no voices are kept. One of the two is None."""
    if url is not None:
        return partial(PostgresVoices, url)
    return partial(VoiceRegistry, folder) if folder is not None else None


class NoVoicesHere(Exception):
    """The folder is not one that a server keeps voices in: most likely its name is wrong."""


def open_kept(place: str) -> Store:
    """One that is there already; opening another would make it. Raises NoVoicesHere and VoiceStoreFailed."""
    if not place.startswith(SCHEMES) and not (Path(place) / DATABASE).is_file():
        raise NoVoicesHere(
            f"no voices are kept in {place}; give the folder of --voices-dir, or the URL of --voices-url"
        )
    return open_named(place)


def open_named(place: str) -> Store:
    """A folder or a URL. Raises VoiceStoreFailed."""
    return PostgresVoices(place) if place.startswith(SCHEMES) else VoiceRegistry(Path(place))
