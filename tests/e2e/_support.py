"""Servers of two processes, and their callers."""

import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from sonorant.client import SpeechClient
from tests.e2e.server_process import ServerProcess, connected, descriptors, samples

CONFIG: dict[str, Any] = {"sampling": {"do_sample": True, "seed": 7}}

ONE_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)  # for each channel

MOST_CONNECTIONS = 64  # that all of them come to the same process is as good as impossible


class ServerProcesses(ServerProcess):
    """`python -m sonorant.service --processes 2` with the built-in voice."""

    def __init__(self, log: Path, *arguments: str) -> None:
        super().__init__(log, "--processes", "2", *arguments)  # of two flags, the later one counts

    def num_calls(self, number: int) -> float:
        """How many calls of Synthesize a server process has handled."""
        return calls_of_synthesize(self.processes[number]["metrics_port"])

    @property
    def workers(self) -> dict[int, str]:
        """Names of the running workers, by process id."""
        names = ("sonorant-talker", "sonorant-code2w")
        return {pid: name for pid, name in self.child_ids().items() if name in names}

    def serving_pids(self) -> list[int]:
        """Ids of the server processes that run."""
        return [pid for pid, name in self.child_ids().items() if name == "sonorant-server"]

    @property
    def is_ready(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/ready", timeout=60) as response:
            return bool(response.status == 200)

    def value(self, name: str) -> float:
        """The sum of a metric's samples."""
        return sum(sample.value for sample in samples(self.metrics_port) if sample.name == name)


def calls_of_synthesize(metrics_port: int) -> float:
    told = [sample for sample in samples(metrics_port) if sample.name == "grpc_server_handled_total"]
    return sum(sample.value for sample in told if sample.labels["method"].endswith("/Synthesize"))


async def clients_of_each(
    stack: AsyncExitStack, server: ServerProcesses, count: int
) -> tuple[list[SpeechClient], list[SpeechClient]]:
    """So many clients of each of the two server processes. Each keeps its connection."""
    found: tuple[list[SpeechClient], list[SpeechClient]] = ([], [])
    for _ in range(MOST_CONNECTIONS):
        before = [connected(server.port) & set(descriptors(each["pid"])) for each in server.processes]
        client = await stack.enter_async_context(SpeechClient(server.address))
        await client.capabilities()
        after = [connected(server.port) & set(descriptors(each["pid"])) for each in server.processes]
        # Not by their count: a connection of an earlier test may close meanwhile.
        number = next(number for number in range(2) if after[number] - before[number])
        if len(found[number]) < count:
            found[number].append(client)
        if all(len(each) == count for each in found):
            return found
    raise AssertionError("all connections came to the same process")
