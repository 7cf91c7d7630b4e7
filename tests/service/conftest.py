"""One PostgreSQL for all tests of this folder that ask for it, each with databases of its own."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import postgres

_numbers = itertools.count()


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
