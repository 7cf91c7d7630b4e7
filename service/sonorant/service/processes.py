"""Several server processes on one port, each with its part of the worker pairs: more than one event loop can serve.

Linux spreads clients' connections over the processes that listen. They know nothing of each other: each has its own
limits, metrics and phrase cache. This process serves nobody. It keeps the port, starts the others, passes signals on,
and replaces those that end.
"""

import asyncio
import json
import logging
import os
import pickle
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

from sonorant.engine import AUTO, EngineConfig, shared_out
from sonorant.service.operations.systemd import NOTIFY_VARIABLE, tell_ready
from sonorant.service.ports import reserved_port
from sonorant.service.server import Announce, announce_on_stdout
from sonorant.service.settings import ServiceConfig

log = logging.getLogger(__name__)

# Before the start that follows the first, second, ... failure in a row; after one more, the whole server ends.
START_DELAYS_S = (0.0, 1.0, 2.0, 5.0)
HEALTHY_AFTER_S = 60.0  # a process that lived for so long begins to count anew
STOP_TIMEOUT_S = 20.0  # beyond what the settings give to calls; afterwards a process is killed


class ProcessEnded(Exception):
    """A server process cannot be kept running."""


async def serve(config: ServiceConfig, drain: asyncio.Event, announce: Announce = announce_on_stdout) -> int:
    """Serve until `drain` is set, and return the exit code. Cancelling this stops all processes at once.

    Raises CannotListen, CheckpointError or EngineError, and ProcessEnded.
    """
    with reserved_port(config.listen) as address:
        async with shared_out(config.engines, config.processes, config.mps) as parts:
            configs = [part_config(config, number, engines, address) for number, engines in enumerate(parts)]
            codes = await _Processes(configs, drain, announce).run()
    announce("stopped")
    return int(any(codes))


def part_config(config: ServiceConfig, number: int, engines: Sequence[EngineConfig], address: str) -> ServiceConfig:
    """Return the settings of one process. Metrics and admin ports are counted up from those in `config`."""
    max_sessions = config.max_sessions
    if max_sessions != AUTO:
        max_sessions = -(-max_sessions // config.processes)
    return replace(
        config,
        engines=tuple(engines),
        mps="false",  # the daemon runs already, if they need one
        processes=1,
        listen=address,
        shares_port=True,
        max_sessions=max_sessions,
        metrics_listen=_counted_up(config.metrics_listen, number),
        admin_listen=_counted_up(config.admin_listen, number),
    )


def _counted_up(address: str | None, number: int) -> str | None:
    if address is None or address.endswith(":0"):
        return address
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + number}"


class _Processes:
    def __init__(self, configs: Sequence[ServiceConfig], drain: asyncio.Event, announce: Announce) -> None:
        self._configs = configs
        self._drain = drain
        self._announce = announce
        self._listening: dict[int, dict[str, Any]] = {}  # what each process told when it began to listen
        # Workers measure at their start how fast they are, so processes that share a GPU are started one by one.
        share_gpus = any(engine.gpu_share < 1 for config in configs for engine in config.engines)
        self._starting = asyncio.Semaphore(1 if share_gpus else len(configs))
        self._serving: set[int] = set()  # processes that served at least once

    async def run(self) -> list[int]:
        """Keep all processes running until the drain; return their exit codes."""
        try:
            async with asyncio.TaskGroup() as tasks:
                kept = [tasks.create_task(self._keep(number)) for number in range(len(self._configs))]
        except* ProcessEnded as ended:
            raise ended.exceptions[0] from None
        return [task.result() for task in kept]

    async def _keep(self, number: int) -> int:
        """Keep one process running until the drain; return its exit code. Raises ProcessEnded."""
        num_failures = 0  # in a row
        while True:
            began_s = time.monotonic()
            code = await self._run(number)
            if self._drain.is_set():
                return code
            num_failures = 1 if time.monotonic() - began_s > HEALTHY_AFTER_S else num_failures + 1
            if number not in self._serving or num_failures > len(START_DELAYS_S):
                raise ProcessEnded(f"server process {number + 1} ended with status {code}, see its log")
            log.error("server process %d ended with status %d; starting it again", number + 1, code)
            with suppress(TimeoutError):
                async with asyncio.timeout(START_DELAYS_S[num_failures - 1]):
                    await self._drain.wait()
            if self._drain.is_set():
                return code

    async def _run(self, number: int) -> int:
        """Run one process to its end, which the drain brings about; return its exit code."""
        async with AsyncExitStack() as starting:
            await starting.enter_async_context(self._starting)
            try:
                process = await _start(self._configs[number])
            except OSError as error:
                log.error("cannot start server process %d: %s", number + 1, error)
                return 1
            ending = asyncio.create_task(self._end_at_drain(process))
            try:
                async for event in _events(process):
                    self._on_event(number, process.pid, event)
                    await starting.aclose()  # the first event comes when its workers have loaded
                return await process.wait()
            finally:
                ending.cancel()
                await self._stop(process)

    async def _end_at_drain(self, process: Process) -> None:
        await self._drain.wait()
        _terminate(process)

    async def _stop(self, process: Process) -> None:
        """End a process that still runs: in order, or at once if it is ending in order already."""
        _terminate(process)
        config = self._configs[0]
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
                if first and len(self._listening) == len(self._configs):
                    self._announce("listening", **self._ports(), model=told["model"])
            case "serving" if number in self._serving:
                log.info("server process %d serves again", number + 1)
            case "serving":
                self._serving.add(number)
                if len(self._serving) == len(self._configs):
                    self._announce("serving", port=told["port"])
                    tell_ready()

    def _ports(self) -> dict[str, Any]:
        """The port, and of each process its id and the ports of its own."""
        processes = [
            {name: value for name, value in self._listening[number].items() if name not in ("port", "model")}
            for number in sorted(self._listening)
        ]
        return {"port": self._listening[0]["port"], "processes": processes}


async def _start(config: ServiceConfig) -> Process:
    """Start a process in a session of its own, so that only this process gets the signals of a terminal."""
    environment = {name: value for name, value in os.environ.items() if name != NOTIFY_VARIABLE}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sonorant.service.part", stdin=PIPE, stdout=PIPE, env=environment, start_new_session=True
    )
    assert process.stdin is not None
    with suppress(OSError, RuntimeError):  # it has ended already; RuntimeError is what uvloop says then
        process.stdin.write(pickle.dumps(config))  # and left open: it closes when this process ends, however it does
    return process


async def _events(process: Process) -> AsyncIterator[dict[str, Any]]:
    assert process.stdout is not None
    async for line in process.stdout:
        yield json.loads(line)


def _terminate(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
