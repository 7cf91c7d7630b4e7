"""Runs one gateway process from its start to its end, and handles its signals."""

import asyncio
import gc
import logging
import signal

import uvloop

from sonorant import logs
from sonorant.client.errors import error_text
from sonorant.gateway.connections import raise_file_limit
from sonorant.gateway.log_filters import is_news
from sonorant.gateway.serving import Gateway
from sonorant.gateway.settings import GatewayConfig
from sonorant.hosting.addresses import CannotListen
from sonorant.hosting.tls import TlsError

log = logging.getLogger("sonorant.gateway")


def run_process(config: GatewayConfig, *, shared: bool = False) -> int:
    """Serve until a signal; return the exit status. `shared`: other processes listen on the same ports."""
    logs.set_up(is_news)
    raise_file_limit()
    try:
        return uvloop.run(_serve(config, shared))
    except asyncio.CancelledError:
        log.warning("stopped at once by a second signal")
        return 1


async def _serve(config: GatewayConfig, shared: bool) -> int:
    """Serve until the first signal, which drains; the second one stops at once."""
    drain = asyncio.Event()
    main_task = asyncio.current_task()
    assert main_task is not None

    def on_signal() -> None:
        if drain.is_set():
            main_task.cancel()
        drain.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    try:
        gateway = Gateway(config, shared=shared)
    except (CannotListen, TlsError, OSError, ValueError) as error:
        log.error("%s", error_text(error))
        return 1
    gc.collect()
    gc.freeze()  # these objects stay for good, so full collections, for which all audio waits, can skip them
    await gateway.run(drain)
    return 0
