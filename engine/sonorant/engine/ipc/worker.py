"""What the entry functions of all worker processes share: reporting that the model is loaded, and ending.

An exception in a worker's loop ends its process, and the engine starts another one: a step or call that broke off
half-way may have left any stream it worked on in an unknown state.
"""

import gc
import logging
import os
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import TypeVar

from sonorant.engine.errors import CheckpointError, EngineError
from sonorant.engine.ipc.channel import PeerGone
from sonorant.logs import start

T = TypeVar("T")

NICENESS = 5  # of a worker on the CPU: a third of the server process's share when both want the same core

log = logging.getLogger(__name__)


def give_way() -> None:
    """Let the server process go first, which needs little time but everyone waits for. Covers later threads, too."""
    os.nice(NICENESS)


def report_loaded(name: str, ready: Connection, load: Callable[[], tuple[T, Mapping[str, object]]]) -> T:
    """Load the worker and return the first value that `load` returns.

    Sends the second one, and the CUDA_ variables of the environment, on `ready`, where `Child.loaded` receives them. If
    `load` fails, sends the reason and exits; an unexpected error, which is none of EngineError, is also logged.
    """
    with ready:
        try:
            loaded, info = load()
        except Exception as error:
            if not isinstance(error, EngineError):
                log.exception("%s failed to start", name)
            kind = "unusable" if isinstance(error, CheckpointError) else "failed"
            ready.send((kind, f"{name}: {error}"))
            raise SystemExit(1) from None
        cuda = {name: value for name, value in os.environ.items() if name.startswith("CUDA_")}
        ready.send(("ready", {**info, **cuda}))
    start.end()
    gc.freeze()  # what was loaded lives as long as the process; no collection needs to visit it
    return loaded


def serve(name: str, loop: Callable[[], None], num_streams: Callable[[], int]) -> None:
    """Run the loop until it returns or its neighbours are gone. Exits with an error if it raises anything else."""
    try:
        loop()
    except PeerGone:
        log.info("the other end of a ring is gone, %s stops", name)
    except Exception:
        log.exception("%s stopped by an error with %d streams open", name, num_streams())
        raise SystemExit(1) from None
