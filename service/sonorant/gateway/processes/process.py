"""Runs one gateway process from its start to its end."""

import gc
import logging

from sonorant.client.errors import error_text
from sonorant.gateway.log_filters import is_news
from sonorant.gateway.processes.serving import Gateway
from sonorant.gateway.settings import GatewayConfig
from sonorant.hosting.addresses import CannotListen
from sonorant.hosting.process import Signals, run_to_end
from sonorant.hosting.tls import TlsError

log = logging.getLogger("sonorant.gateway")


def run_process(config: GatewayConfig, lifeline: int | None = None) -> int:
    """Serve until a signal; return the exit status. `lifeline`: see `Signals`."""
    return run_to_end(lambda signals: _serve(config, signals), is_news, lifeline=lifeline)


async def _serve(config: GatewayConfig, signals: Signals) -> int:
    try:
        gateway = Gateway(config)
    except (CannotListen, TlsError, OSError, ValueError) as error:
        log.error("%s", error_text(error))
        return 1
    signals.is_loading = False
    gc.collect()
    gc.freeze()  # these objects stay for good, so full collections, for which all audio waits, can skip them
    await gateway.run(signals.drain)
    return 0
