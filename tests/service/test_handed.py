"""Covers: shared memory that the owner hands to its server processes."""

import asyncio
import pickle
import sys
from asyncio.subprocess import PIPE

import numpy as np

from sonorant.engine import SharedRecord
from sonorant.service.handed import Handed
from tests.service.harness import server_config

WRITE = (
    "import pickle, sys; handed = pickle.load(sys.stdin.buffer); handed.table.record.field('rows')[handed.number] = 7"
)


class Table:
    """A number for each of two server processes."""

    def __init__(self) -> None:
        self.record = SharedRecord(np.dtype([("rows", "i8", 2)]))

    def fds(self) -> tuple[int, ...]:
        return self.record.fds()

    def clear(self, number: int) -> None:
        self.record.field("rows")[number] = 0


async def test_a_table_comes_with_the_settings_and_is_the_same_memory() -> None:
    table = Table()
    handed = Handed(server_config(), 1, table)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITE, stdin=PIPE, pass_fds=handed.fds())
    await process.communicate(pickle.dumps(handed))
    assert process.returncode == 0
    assert table.record.field("rows").tolist() == [0, 7]
    table.record.close()
