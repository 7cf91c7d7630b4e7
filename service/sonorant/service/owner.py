"""The owner: the process that was started. It serves nobody. It has what a host has once: port, workers, limits.

It starts one server process or several, which serve gRPC on the same port with the same workers. Linux spreads clients'
connections over them. The owner passes signals on, replaces a server process that ends, and serves the metrics of all.
"""

import asyncio
import logging
import os
import socket
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from sonorant.engine import AUTO, SharedPairs, find_card, shared_pairs
from sonorant.hosting.addresses import CannotListen, listening_socket, reserved_port
from sonorant.hosting.children import Children, ProcessEnded, processes_of_cores, start_module
from sonorant.hosting.process import ORPHAN_GRACE_S, Signals, announce
from sonorant.hosting.tls import TlsError
from sonorant.logs import start
from sonorant.service.access.receipt_key import ReceiptKeyError, read_key
from sonorant.service.access.tls import server_credentials
from sonorant.service.admission.ledger import Ledger
from sonorant.service.early_port import EarlyPort
from sonorant.service.handed import Handed
from sonorant.service.operations.metrics_port import serve_metrics
from sonorant.service.operations.process_metrics import ready, scrape
from sonorant.service.operations.restart_metrics import RestartCollector
from sonorant.service.operations.systemd import NOTIFY_VARIABLE, tell_ready
from sonorant.service.process import run_service
from sonorant.service.settings import ServiceConfig

log = logging.getLogger(__name__)


def run(config: ServiceConfig) -> int:
    """Run a server to its end, and return its exit code."""
    return run_service(lambda signals: serve(config, signals), (CannotListen, ProcessEnded, ReceiptKeyError, TlsError))


async def serve(config: ServiceConfig, signals: Signals) -> int:
    """Serve until a signal, and return the exit code. Cancelling this stops all processes at once.

    Raises CannotListen, CheckpointError or EngineError, ReceiptKeyError, TlsError, and ProcessEnded.
    """
    key = config.receipt_key or read_key(config.receipt_key_file)
    async with AsyncExitStack() as stack:
        config = replace(config, processes=number_of(config), receipt_key=key)
        address = await _port(stack, config.listen)
        listening = None
        if config.metrics_listen:
            listening = stack.enter_context(listening_socket(config.metrics_listen, "--metrics-listen"))
        early = await _early_port(stack, config, address)
        start.phase("port")
        pairs = await stack.enter_async_context(shared_pairs(config.engines, config.processes, config.mps))
        config = config.with_sizes(pairs.configs)
        ledger = Ledger(config.processes)
        stack.callback(ledger.close)
        handed = [
            Handed(own_config(config, number, address), ledger.of_process(number)) for number in range(config.processes)
        ]
        processes = _Processes(handed, pairs, signals, listening, early)
        if listening is not None:
            await stack.enter_async_context(serve_metrics(listening, processes.metrics, processes.ready))
        codes = await processes.run(processes.load())
    announce("stopped")
    return int(any(codes))


async def _port(stack: AsyncExitStack, address: str) -> str:
    """Keep the server's port. The processes of a server that was killed have it for up to ORPHAN_GRACE_S more, so a
    server that is started again at once waits for it. Raises CannotListen."""
    now_s = asyncio.get_running_loop().time
    latest_s = now_s() + ORPHAN_GRACE_S + 1
    while True:
        try:
            return stack.enter_context(reserved_port(address, "--listen"))
        except CannotListen as error:
            if not error.is_taken or now_s() > latest_s:
                raise
        await asyncio.sleep(0.1)


async def _early_port(stack: AsyncExitStack, config: ServiceConfig, address: str) -> EarlyPort | None:
    """Raises TlsError or CannotListen."""
    if not config.early_port:
        return None
    early = EarlyPort(address, server_credentials(config.tls) if config.tls else None)
    await early.start()
    stack.push_async_callback(early.close)
    return early


def number_of(config: ServiceConfig) -> int:
    """Return how many server processes there are to be; see `ServiceConfig.processes`. Blocks for some milliseconds."""
    if config.processes != AUTO:
        return config.processes
    if not any(find_card(engine.talker.device) for engine in config.engines):
        return 1
    return processes_of_cores()


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


class _Processes(Children):
    def __init__(
        self,
        handed: Sequence[Handed],
        pairs: SharedPairs,
        signals: Signals,
        metrics: socket.socket | None,
        early: EarlyPort | None,
    ) -> None:
        """`metrics`: the socket on which metrics are asked for. `early` answers calls until a process does."""
        config = handed[0].config
        grace_s = config.drain_delay_s + config.drain_grace_s
        super().__init__("server process", len(handed), signals.drain, grace_s)
        self._handed = handed
        self._pairs = pairs
        self._signals = signals
        self._metrics = metrics
        self._early = early
        self._own_metrics = CollectorRegistry()
        self._own_metrics.register(RestartCollector(pairs.restarts, lambda: self.num_replaced))
        self._listening: dict[int, dict[str, Any]] = {}  # what each process told when it began to listen

    async def load(self) -> None:
        """Start the workers."""
        await self._pairs.start()
        start.phase("workers")
        self._signals.is_loading = False

    async def metrics(self) -> bytes:
        """The metrics of all processes, as if they were one, and those of the owner."""
        return await scrape(self._metrics_ports()) + generate_latest(self._own_metrics)

    async def ready(self) -> str:
        """What /ready answers; "" if no process takes new calls."""
        return await ready(self._metrics_ports())

    def _metrics_ports(self) -> list[int]:
        return [told["metrics_port"] for told in self._listening.values()]

    async def start(self, number: int) -> Process:
        handed = self._handed[number]
        environment = {name: value for name, value in os.environ.items() if name != NOTIFY_VARIABLE}
        with self._pairs.connect(number) as end:
            try:
                return await start_module(
                    *("sonorant.service.server_process", str(end.fileno())),
                    settings=handed,
                    environment=environment,
                    pass_fds=[end.fileno(), *handed.ledger.fds()],
                )
            except OSError:
                self._pairs.leave(number)
                raise

    def on_end(self, number: int, pid: int) -> None:
        self._pairs.leave(number)
        self._handed[number].ledger.clear(number)

    def check(self) -> None:
        if self._pairs.have_failed:
            raise ProcessEnded("the workers keep failing, see their log")

    async def prepare(self, number: int) -> None:
        await self._pairs.clear(number)

    async def on_event(self, number: int, pid: int, told: dict[str, Any]) -> None:
        match told.pop("event"):
            case "listening":
                first = number not in self._listening
                self._listening[number] = {"pid": pid, **told}
                if self._early is not None:
                    await self._early.close()
                if first and len(self._listening) == len(self._handed):
                    announce("listening", **self._ports(), model=told["model"])
            case "serving" if number in self._served:
                self.serves(number)
                log.info("server process %d serves again", number + 1)
            case "serving":
                self.serves(number)
                if len(self._served) == len(self._handed):
                    start.phase("server processes")
                    start.end()
                    announce("serving", port=told["port"])
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
