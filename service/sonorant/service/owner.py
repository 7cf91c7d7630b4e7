"""The owner: the process that was started. It serves nobody. It has what a host has once: port, workers, limits.

It starts one server process or several, which serve gRPC on the same port with the same workers. Linux spreads clients'
connections over them. The owner passes signals on, replaces a server process that ends, and serves the metrics of all.
"""

import asyncio
import json
import logging
import os
import pickle
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

from sonorant.engine import AUTO, EngineError, SharedPairs, find_card, shared_pairs
from sonorant.hosting.addresses import CannotListen, listening_socket, reserved_port
from sonorant.service.admission.ledger import Ledger
from sonorant.service.announcements import announce_on_stdout
from sonorant.service.handed import Handed
from sonorant.service.operations.metrics_port import serve_metrics
from sonorant.service.operations.process_metrics import any_ready, scrape
from sonorant.service.operations.systemd import NOTIFY_VARIABLE, tell_ready
from sonorant.service.process import Signals, run_to_end
from sonorant.service.settings import ServiceConfig
from sonorant.service.speak.receipts import ReceiptKeyError, read_key

log = logging.getLogger(__name__)

# If `processes` is AUTO, on a GPU. The workers, gRPC's threads and the rest of the machine need cores, too.
CORES_PER_PROCESS, MOST_PROCESSES = 2, 8

# Before the start that follows the first, second, ... failure in a row; after one more, the whole server ends.
START_DELAYS_S = (0.0, 1.0, 2.0, 5.0)
HEALTHY_AFTER_S = 60.0  # a process that lived for so long begins to count anew
STOP_TIMEOUT_S = 20.0  # beyond what the settings give to calls; afterwards a process is killed


class ProcessEnded(Exception):
    """A server process cannot be kept running."""


def run(config: ServiceConfig) -> int:
    """Run a server to its end, and return its exit code."""
    return run_to_end(lambda signals: serve(config, signals), (CannotListen, ProcessEnded, ReceiptKeyError))


async def serve(config: ServiceConfig, signals: Signals) -> int:
    """Serve until a signal, and return the exit code. Cancelling this stops all processes at once.

    Raises CannotListen, CheckpointError or EngineError, ReceiptKeyError, and ProcessEnded.
    """
    key = config.receipt_key or read_key(config.receipt_key_file)
    config = replace(config, processes=number_of(config), receipt_key=key)
    async with AsyncExitStack() as stack:
        address = stack.enter_context(reserved_port(config.listen, "--listen"))
        listening = None
        if config.metrics_listen:
            listening = stack.enter_context(listening_socket(config.metrics_listen, "--metrics-listen"))
        pairs = await stack.enter_async_context(shared_pairs(config.engines, config.processes, config.mps))
        config = config.with_sizes(pairs.configs)
        ledger = Ledger(config.processes)
        stack.callback(ledger.close)
        handed = [
            Handed(own_config(config, number, address), ledger.of_process(number)) for number in range(config.processes)
        ]
        processes = _Processes(handed, pairs, signals, listening)
        if listening is not None:
            await stack.enter_async_context(serve_metrics(listening, processes.metrics, processes.are_ready))
        codes = await processes.run()
    announce_on_stdout("stopped")
    return int(any(codes))


def number_of(config: ServiceConfig) -> int:
    """Return how many server processes there are to be; see `ServiceConfig.processes`. Blocks for some milliseconds."""
    if config.processes != AUTO:
        return config.processes
    if not any(find_card(engine.talker.device) for engine in config.engines):
        return 1
    return min(MOST_PROCESSES, max(1, len(os.sched_getaffinity(0)) // CORES_PER_PROCESS))


def own_config(config: ServiceConfig, number: int, address: str) -> ServiceConfig:
    """Return the settings of one server process. Admin ports are counted up from that in `config`."""
    return replace(
        config,
        listen=address,
        metrics_listen="127.0.0.1:0" if config.metrics_listen else None,  # for this process, which merges them
        admin_listen=_counted_up(config.admin_listen, number),
    )


def _counted_up(address: str | None, number: int) -> str | None:
    if address is None or address.endswith(":0"):
        return address
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + number}"


class _Processes:
    def __init__(
        self,
        handed: Sequence[Handed],
        pairs: SharedPairs,
        signals: Signals,
        metrics: socket.socket | None,
    ) -> None:
        """`metrics` listens for those who ask for metrics."""
        self._handed = handed
        self._pairs = pairs
        self._signals = signals
        self._drain = signals.drain
        self._metrics = metrics
        self._listening: dict[int, dict[str, Any]] = {}  # what each process told when it began to listen
        self._serving: set[int] = set()  # processes that served at least once

    async def run(self) -> list[int]:
        """Start the workers and keep all processes running until the drain; return their exit codes."""
        try:
            async with asyncio.TaskGroup() as tasks:
                starting = tasks.create_task(self._load())
                kept = [tasks.create_task(self._keep(number)) for number in range(len(self._handed))]
                await asyncio.wait(kept)
                starting.cancel()
        except ExceptionGroup as ended:  # not `except*`: Python 3.11.2 makes a group of what is raised there
            expected, _ = ended.split((ProcessEnded, EngineError))
            raise (expected or ended).exceptions[0] from None
        return [task.result() for task in kept]

    async def _load(self) -> None:
        await self._pairs.start()
        self._signals.is_loading = False

    async def metrics(self) -> bytes:
        """The metrics of all processes, as if they were one."""
        return await scrape(self._metrics_ports())

    async def are_ready(self) -> bool:
        """Whether any process takes new calls."""
        return await any_ready(self._metrics_ports())

    def _metrics_ports(self) -> list[int]:
        return [told["metrics_port"] for told in self._listening.values()]

    async def _keep(self, number: int) -> int:
        """Keep one process running until the drain; return its exit code. Raises ProcessEnded."""
        num_failures = 0  # in a row
        while True:
            began_s = time.monotonic()
            code = await self._run(number)
            if self._drain.is_set():
                return code
            if self._pairs.have_failed:
                raise ProcessEnded("the workers keep failing, see their log")
            num_failures = 1 if time.monotonic() - began_s > HEALTHY_AFTER_S else num_failures + 1
            if number not in self._serving or num_failures > len(START_DELAYS_S):
                raise ProcessEnded(f"server process {number + 1} ended with status {code}, see its log")
            log.error("server process %d ended with status %d; starting it again", number + 1, code)
            await self._pairs.clear(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(START_DELAYS_S[num_failures - 1]):
                    await self._drain.wait()
            if self._drain.is_set():
                return code

    async def _run(self, number: int) -> int:
        """Run one process to its end, which the drain brings about; return its exit code."""
        with self._pairs.connect(number) as end:
            try:
                process = await _start(self._handed[number], end)
            except OSError as error:
                log.error("cannot start server process %d: %s", number + 1, error)
                self._pairs.leave(number)
                return 1
        ending = asyncio.create_task(self._end_at_drain(process))
        try:
            async for event in _events(process):
                self._on_event(number, process.pid, event)
            return await process.wait()
        finally:
            ending.cancel()
            await self._stop(process)
            self._pairs.leave(number)
            self._handed[number].ledger.clear(number)

    async def _end_at_drain(self, process: Process) -> None:
        await self._drain.wait()
        _terminate(process)

    async def _stop(self, process: Process) -> None:
        """End a process that still runs: in order, or at once if it is ending in order already."""
        _terminate(process)
        config = self._handed[0].config
        try:
            async with asyncio.timeout(config.drain_delay_s + config.drain_grace_s + STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def _on_event(self, number: int, pid: int, told: dict[str, Any]) -> None:
        match told.pop("event"):
            case "listening":
                first = number not in self._listening
                self._listening[number] = {"pid": pid, **told}
                if first and len(self._listening) == len(self._handed):
                    announce_on_stdout("listening", **self._ports(), model=told["model"])
            case "serving" if number in self._serving:
                log.info("server process %d serves again", number + 1)
            case "serving":
                self._serving.add(number)
                if len(self._serving) == len(self._handed):
                    announce_on_stdout("serving", port=told["port"])
                    tell_ready()

    def _ports(self) -> dict[str, Any]:
        """The port, and of each process its id and the ports of its own."""
        processes = [
            {name: value for name, value in self._listening[number].items() if name not in ("port", "model")}
            for number in sorted(self._listening)
        ]
        ports = {name: port for name, port in self._listening[0].items() if name in ("port", "admin_port")}
        if self._metrics is not None:
            ports["metrics_port"] = self._metrics.getsockname()[1]
        return {**ports, "processes": processes}


async def _start(handed: Handed, end: socket.socket) -> Process:
    """Start a process in a session of its own, so that only this process gets the signals of a terminal."""
    environment = {name: value for name, value in os.environ.items() if name != NOTIFY_VARIABLE}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sonorant.service.server_process", str(end.fileno())),
        stdin=PIPE,
        stdout=PIPE,
        env=environment,
        start_new_session=True,
        pass_fds=[end.fileno(), *handed.ledger.fds()],
    )
    assert process.stdin is not None
    with suppress(OSError, RuntimeError):  # it has ended already; RuntimeError is what uvloop says then
        process.stdin.write(pickle.dumps(handed))  # and left open: it closes when this process ends, however it does
    return process


async def _events(process: Process) -> AsyncIterator[dict[str, Any]]:
    assert process.stdout is not None
    async for line in process.stdout:
        yield json.loads(line)


def _terminate(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
