"""Covers: what the owner hands to a server process."""

import asyncio
import pickle
import sys
from asyncio.subprocess import PIPE
from contextlib import closing

from sonorant.service.admission.ledger import Counted, Ledger
from sonorant.service.handed import Handed
from tests.service.harness import server_config

TAKE = (
    "import pickle, sys; from sonorant.service.admission.ledger import Counted; "
    "pickle.load(sys.stdin.buffer).ledger.take(5, Counted.SESSIONS, print)"
)


async def test_a_process_counts_in_the_same_memory_and_is_cleared_when_it_has_ended() -> None:
    with closing(Ledger(2)) as ledger:
        ledger.of_process(0).take(5, Counted.SESSIONS, lambda num_all, num_own: None)
        handed = Handed(server_config(), ledger.of_process(1))
        fds = handed.ledger.fds()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", TAKE, stdin=PIPE, stdout=PIPE, pass_fds=fds
        )
        told, _ = await process.communicate(pickle.dumps(handed))
        assert told == b"1 1\n"
        assert ledger.total(Counted.SESSIONS) == 2
        ledger.clear(1)
        assert ledger.total(Counted.SESSIONS) == 1
