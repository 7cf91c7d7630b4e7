"""Runs several gateway processes on one port. The kernel distributes connections; a process that dies is replaced."""

import logging
import os
from asyncio.subprocess import Process
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from sonorant.gateway.settings import GatewayConfig
from sonorant.gateway.shared_counts import SHARED_DIR_VARIABLE, shared_folder
from sonorant.hosting.addresses import CannotListen, reserved_port
from sonorant.hosting.children import Children, ProcessEnded, start_module
from sonorant.hosting.process import Signals, announce, run_to_end

log = logging.getLogger("sonorant.gateway")


def supervise(config: GatewayConfig) -> int:
    """Run the processes until a signal, which is passed on to each of them; return the exit status."""
    return run_to_end(lambda signals: _serve(config, signals))


async def _serve(config: GatewayConfig, signals: Signals) -> int:
    signals.is_loading = False
    try:
        with ExitStack() as stack:
            codes = await _Supervisor(_with_ports(config, stack), stack.enter_context(shared_folder()), signals).run()
    except (CannotListen, ProcessEnded) as error:
        log.error("%s", error)
        return 1
    return int(any(codes))


class _Supervisor(Children):
    def __init__(self, config: GatewayConfig, folder: str | None, signals: Signals) -> None:
        """`folder`: where the processes count for each other's metrics; None: each counts alone."""
        super().__init__("gateway process", config.processes, signals.drain, config.drain_grace_s)
        self._config = config
        self._folder = folder

    async def start(self, number: int) -> Process:
        environment = {**os.environ, **({SHARED_DIR_VARIABLE: self._folder} if self._folder else {})}
        return await start_module("sonorant.gateway.processes.member", settings=self._config, environment=environment)

    async def on_event(self, number: int, pid: int, told: dict[str, Any]) -> None:
        self.serves(number)
        announce(told.pop("event"), **told)

    def on_end(self, number: int, pid: int) -> None:
        if self._folder:
            mark_process_dead(pid, self._folder)  # type: ignore[no-untyped-call]


def _with_ports(config: GatewayConfig, stack: ExitStack) -> GatewayConfig:
    """Replace port 0 by a free port, and keep all ports, so that every process listens on the same ones. Raises
    CannotListen."""
    wyoming = config.wyoming_listen
    if wyoming is not None:
        wyoming = stack.enter_context(reserved_port(wyoming, "--wyoming-listen"))
    return replace(config, listen=stack.enter_context(reserved_port(config.listen, "--listen")), wyoming_listen=wyoming)
