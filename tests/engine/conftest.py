"""Fixtures for tests of worker processes, whose entry functions run in the test's own process."""

import dataclasses
import gc
import os
import sys
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from sonorant.engine.ipc.fork_server import WORKERS
from tests.engine.processes import leave
from tests.tiny_checkpoint import write_tiny_checkpoint


@pytest.fixture(scope="session", autouse=True)
def one_fork_server() -> Iterator[None]:
    """Keep one fork server for all engines of the test process, so that torch is imported at most once."""
    WORKERS.hold()
    yield
    WORKERS.release()


@pytest.fixture(scope="session", autouse=True)
def quick_interpreter() -> None:
    """Triton's interpreter looks for overflows of each sum and product of integers, for half of its time. Those of our
    kernels are sizes and places, which are small in the tests."""
    if interpreter := sys.modules.get("triton.runtime.interpreter"):
        builder = interpreter.interpreter_builder
        builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


@pytest.fixture
async def fork_server(one_fork_server: None) -> None:
    """A fork server that runs already, so that it is among the children both before and after the test."""
    if WORKERS.pid is None:
        (await WORKERS.fork("first", leave, (), {}, timeout_s=60)).close()


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Connection, Connection]]:
    """The connection on which a worker reports that it is ready: the parent's end and the worker's. The worker's
    function does not make this process nice: all later tests would starve beside those of other processes. Nor does it
    freeze what it has loaded, which goes with the test."""
    monkeypatch.setattr(os, "nice", lambda increment: 0)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    reader, writer = Pipe(duplex=False)
    yield reader, writer
    reader.close()
    writer.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))
