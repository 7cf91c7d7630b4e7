"""What is special about the processes of the server: how their threads take turns, and which errors are expected."""

import logging
import sys
from collections.abc import Awaitable, Callable

from sonorant.engine import EngineError
from sonorant.hosting.process import Signals, run_to_end
from sonorant.service.log_filters import LOG_FILTERS

log = logging.getLogger("sonorant.service")

# How long a busy thread, such as Explain's, may hold the interpreter while the event loop wants it. The loop releases
# the interpreter several times per turn, so Python's default of 5 ms would stretch turns to 10 to 20 ms meanwhile.
SWITCH_S = 0.0005


def run_service(
    serve: Callable[[Signals], Awaitable[int]], expected: tuple[type[Exception], ...], lifeline: int | None = None
) -> int:
    """Run `serve` to its end, and return the exit code. Of the `expected` errors only the message is logged."""
    sys.setswitchinterval(SWITCH_S)

    async def to_the_end(signals: Signals) -> int:
        try:
            return await serve(signals)
        except EngineError as error:
            log.error("cannot start the engine: %s", error)
        except expected as error:
            log.error("%s", error)
        return 1

    return run_to_end(to_the_end, *LOG_FILTERS, lifeline=lifeline)
