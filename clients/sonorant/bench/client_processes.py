"""The client processes: starts them once, gives them their shares of one load after another, and stops them."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sonorant.bench.loads import Load, Share, SpokenLoad, Target
from sonorant.bench.measure import Measured
from sonorant.bench.records import LENGTH, packed, unpacked
from sonorant.bench.speakers import SpeakingFailed

STREAMS_PER_PROCESS = 8  # so that calls which begin together do not wait for each other in the client
MAX_IN_FLIGHT = 4096  # utterances of an open loop at the same time, over all processes
START_DELAY_S = 0.2  # from the start message until the first utterance
EXPECTED_S = 2.0  # assumed duration of an utterance of an open loop, to choose the number of processes


class ClientProcesses:
    def __init__(self, processes: Sequence[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    async def run(self, target: Target, load: Load, speech: SpokenLoad, timeout_s: float, count: int) -> list[Measured]:
        """Run the load on `count` of the processes. Raises UtteranceFailed if the target cannot be reached."""
        max_in_flight = MAX_IN_FLIGHT // count
        shares = [Share(target, load, speech, timeout_s, max_in_flight, index, count) for index in range(count)]
        processes = self._processes[:count]
        for answer in await asyncio.gather(*map(_request, processes, shares)):
            if answer is not None:
                raise SpeakingFailed(*answer)
        start_s = time.monotonic() + START_DELAY_S
        measured: list[Measured] = await asyncio.gather(*(_request(process, start_s) for process in processes))
        return measured


def num_processes(load: Load) -> int:
    """How many processes this load needs, up to half of the cores, because the server needs some, too."""
    streams = load.amount * EXPECTED_S if load.kind == "open" else load.amount
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores // 2, round(streams / STREAMS_PER_PROCESS)))


@asynccontextmanager
async def client_processes(size: int) -> AsyncIterator[ClientProcesses]:
    processes: list[asyncio.subprocess.Process] = []
    try:
        for _ in range(size):
            # In a session of its own, so that Ctrl-C reaches this process alone.
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sonorant.bench.worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            processes.append(process)
        yield ClientProcesses(processes)
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()  # it has nothing to clean up but connections
        for process in processes:
            await process.wait()


async def _request(process: asyncio.subprocess.Process, record: object) -> Any:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(packed(record))
    await process.stdin.drain()
    try:
        (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        return unpacked(await process.stdout.readexactly(length))
    except asyncio.IncompleteReadError:
        raise SpeakingFailed("CLIENT", f"a client process ended with status {await process.wait()}") from None
