"""Runs several gateway processes on one port. The kernel distributes connections; a process that dies is replaced."""

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from prometheus_client.multiprocess import mark_process_dead

from sonorant import logs
from sonorant.gateway.metrics import SHARED_DIR_VARIABLE
from sonorant.gateway.process import run_process
from sonorant.gateway.settings import GatewayConfig
from sonorant.hosting.addresses import CannotListen, reserved_port

log = logging.getLogger("sonorant.gateway")

RESTART_S = 1.0
_PR_SET_PDEATHSIG = 1


def run_crew(config: GatewayConfig) -> int:
    """Run the processes until a signal, which is passed on to each of them; return the exit status."""
    logs.set_up()
    crew: dict[int, BaseProcess] = {}
    stopping = False

    def on_signal(number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True
        for process in crew.values():
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)

    with ExitStack() as stack:
        os.environ[SHARED_DIR_VARIABLE] = stack.enter_context(tempfile.TemporaryDirectory(prefix="sonorant-gateway-"))
        try:
            config = _with_ports(config, stack)
        except CannotListen as error:
            log.error("%s", error)
            return 1
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, on_signal)
        for _ in range(config.processes):
            _hire(crew, config)
        while crew:
            wait(list(crew))
            for process in [process for process in crew.values() if not process.is_alive()]:
                del crew[process.sentinel]
                process.join()
                mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
                if not stopping:
                    log.error(
                        "gateway process %s ended with status %s; starting another one",
                        process.pid,
                        process.exitcode,
                    )
                    time.sleep(RESTART_S)
                    _hire(crew, config)
    return 0


def _hire(crew: dict[int, BaseProcess], config: GatewayConfig) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(config, os.getpid()))
    process.start()
    crew[process.sentinel] = process


def _work(config: GatewayConfig, parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # even if the parent is killed
    if os.getppid() != parent:
        sys.exit(1)
    sys.exit(run_process(config, shared=True))


def _with_ports(config: GatewayConfig, stack: ExitStack) -> GatewayConfig:
    """Replace port 0 by a free port, and keep all ports, so that every process listens on the same ones. Raises
    CannotListen."""
    wyoming = config.wyoming_listen
    if wyoming is not None:
        wyoming = stack.enter_context(reserved_port(wyoming, "--wyoming-listen"))
    return replace(config, listen=stack.enter_context(reserved_port(config.listen, "--listen")), wyoming_listen=wyoming)
