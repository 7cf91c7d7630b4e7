"""Which store keeps the voices: a folder of this host, or a database that several servers share."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from sonorant.service.voices.postgres_store import PostgresVoices
from sonorant.service.voices.sqlite_store import VoiceRegistry

Store = VoiceRegistry | PostgresVoices
SCHEMES = ("postgresql://", "postgres://")


def opener(folder: Path | None, url: str | None) -> Callable[[], Store] | None:
    """What opens it, in whatever thread calls; None where no voices are kept. One of the two is None."""
    if url is not None:
        return partial(PostgresVoices, url)
    return partial(VoiceRegistry, folder) if folder is not None else None


def open_named(place: str) -> Store:
    """A folder or a URL. Raises VoiceStoreFailed."""
    return PostgresVoices(place) if place.startswith(SCHEMES) else VoiceRegistry(Path(place))
