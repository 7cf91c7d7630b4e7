"""A real server process with real workers, and what /proc says about it."""

import json
import os
import signal
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from sonorant.client.local_server import SERVICE
from tests.told_process import ToldProcess, run
from tests.warm_start import start

LISTEN = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")


def samples(metrics_port: int) -> list[Any]:
    """Of a server's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as response:
        text = response.read().decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def scrape(server: "ServerProcess") -> dict[tuple[str, str], float]:
    """Samples by name and worker."""
    return {(sample.name, sample.labels.get("worker", "")): sample.value for sample in samples(server.metrics_port)}


def refused(log: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and log of a server that does not start, and so tells nothing."""
    process = start(log, sys.executable, SERVICE, (*LISTEN, *arguments))
    code = process.wait(60)
    with process.stdout as told:
        assert not told.read()
    return code, log.read_text()


class ServerProcess(ToldProcess):
    """`python -m sonorant.service` on free ports; it goes when this process does."""

    def __init__(
        self,
        log: Path,
        *arguments: str,
        python: str | Path = sys.executable,
        environment: Mapping[str, str] | None = None,
        before: str = "",
    ) -> None:
        """Of `python`, with its variables if they are not this process's. `before`: see `run`. One that needs none of
        them starts with a fork server that is there already."""
        if python == sys.executable and environment is None and not before:
            process = start(log, sys.executable, SERVICE, (*LISTEN, *arguments))
        else:
            process = run(log, [python, "-c", SERVICE, *LISTEN, *arguments], environment, before)
        super().__init__(log, process)

    def _wait_until_ready(self) -> None:
        listening: Any = self.wait_for("listening")
        self.port = int(listening["port"])
        self.metrics_port = int(listening["metrics_port"])
        self.processes: list[dict[str, int]] = listening["processes"]  # those that serve, as they were first
        self.wait_for("serving")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def worker(self, name: str, model: str = "") -> int:
        """Process id of the worker that was started last under this name, for this checkpoint if there are several."""
        messages = [json.loads(line)["message"] for line in self.log.splitlines() if line.startswith("{")]
        return [int(m.split()[2]) for m in messages if m.startswith(f"{name} worker ") and f"{model} is ready" in m][-1]

    @property
    def serving_pid(self) -> int:
        """The id of the first server process."""
        return self.processes[0]["pid"]

    def strike(self, fault: signal.Signals) -> None:
        """Send a signal to all of its processes, as when its machine fails or freezes."""
        for pid in (self.process.pid, *self.child_ids()):
            with suppress(ProcessLookupError):
                os.kill(pid, fault)

    def children(self) -> list[str]:
        """What the processes are that the server has started, without the ids."""
        return list(self.child_ids().values())

    def child_ids(self) -> dict[int, str]:
        """Names of all processes that the server has started, by id."""
        parents, names = dict[int, int](), dict[int, str]()
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                pid, rest = stat.read_text().split(" (", 1)
                name, fields = rest.rsplit(") ", 1)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != "Z":
                names[int(pid)], parents[int(pid)] = name, int(fields.split()[1])
        serving = {pid for pid, name in names.items() if name == "sonorant-server"}
        above = {self.process.pid, *(pid for pid in serving if parents[pid] == self.process.pid)}
        return {pid: names[pid] for pid, parent in parents.items() if parent in above}

    def open_files(self) -> Counter[str]:
        """What the first server process has open: kinds of file descriptors, without numbers that always differ, and
        without connections that their clients have open, too: grpcio 1.83 keeps that of a call whose event loop ended
        before it did, whatever becomes of the channel."""
        connections = connected(self.port)
        targets = descriptors(self.serving_pid)
        return Counter(target.split(":[")[0] for target in targets if target not in connections)


def descriptors(pid: int) -> Iterator[str]:
    """What the file descriptors of a process lead to."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield os.readlink(link)


def connected(port: int) -> set[str]:
    """The server's sockets of connections to this port that neither side has closed."""
    tables = [Path(f"/proc/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table.splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"}
