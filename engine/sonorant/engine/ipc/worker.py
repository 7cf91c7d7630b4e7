"""What the entries of all worker processes have in common: how loading is told, and how they end.

An exception in a loop is fatal to its process, and the engine starts another: what a step or a call leaves behind when
it breaks off half-way is not known for anything that it worked on.
"""

import gc
import logging
import os
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import TypeVar

from sonorant.engine.errors import CheckpointError, EngineError
from sonorant.engine.ipc.channel import PeerGone

T = TypeVar("T")

NICENESS = 5  # of a process that computes on the CPU: a third of the service's share, where both want the same core

log = logging.getLogger(__name__)


def give_way() -> None:
    """To the service process, for threads started from now on, too. It needs little time, but all wait for it."""
    os.nice(NICENESS)


def tell_loaded(name: str, ready: Connection, load: Callable[[], tuple[T, Mapping[str, object]]]) -> T:
    """What `load` returns first; what it returns second is told on `ready`, for `Child.loaded`, with what CUDA is told.

    Exits if it fails, having told why; what is not an EngineError, which says all there is to say, is logged as well.
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
    gc.freeze()  # what was loaded lives as long as the process; a full collection need not walk it
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
