"""Fixtures of the tests of worker processes, whose entries run in the test's own."""

import gc
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.tiny_checkpoint import write_tiny_checkpoint


@pytest.fixture
def pipe() -> Iterator[tuple[Connection, Connection]]:
    """What a worker is ready by: the parent's end and the worker's."""
    reader, writer = Pipe(duplex=False)
    yield reader, writer
    reader.close()
    writer.close()
    gc.unfreeze()  # see sonorant.engine.ipc.worker


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))
