"""What the tests of this folder run on: the event loop of a server, and a PostgreSQL for those that ask for it."""

import asyncio
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

from tests.service import postgres

_numbers = itertools.count()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of a server process. Its timers, for one, are not those of asyncio's own."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    postgres.require()
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:  # short: sockets have paths of 107 bytes at most
        cluster = postgres.Cluster(Path(folder))
        yield cluster
        cluster.stop()


@pytest.fixture
def database(cluster: postgres.Cluster) -> str:
    """URL of an empty database."""
    return cluster.database(f"test-{next(_numbers)}")
