import asyncio
import gc
import importlib.util
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis.internal import entropy

if TYPE_CHECKING:
    from tests.e2e.server_process import ServerProcess

# A proxy of this machine is not for servers that tests start.
for name in ("no_proxy", "NO_PROXY"):
    os.environ[name] = ",".join((*filter(None, (os.environ.get(name),)), "localhost,127.0.0.1,::1,.invalid"))
# Before torch is imported anywhere: two test processes with a thread pool each wait for one another most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# So do the threads of a worker that has two, unless they sleep while they wait: its start took 15 s of processor time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Before Triton is imported anywhere: without a GPU its kernels are interpreted, on the CPU.
if importlib.util.find_spec("triton") and not os.path.exists("/dev/nvidiactl"):
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Nothing here draws from numpy's global generator. To save, seed and restore it for each example of a property would
# take most of the time of a short one.
entropy.NP_RANDOM = random.Random()

# What is made while all tests are read stays: the collector need not look for garbage there, now or later.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    # No tensor here is spread over devices. To ask whether one is, `assert_close` would import for a second.
    if comparison := sys.modules.get("torch.testing._comparison"):
        comparison._HAS_DTENSOR = False  # type: ignore[attr-defined]


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what Triton's modules hold is freed at the end, or its bindings would tell of hundreds of leaks


# A shell that starts us in the background has SIGINT ignored, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and no limit on the time of one: what this machine does beside must decide nothing.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Other examples in every run (pytest --hypothesis-profile=fuzz); pin what fails with @example.
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile("suite")


uvloop.new_event_loop().close()  # the first one of a process opens what all share; tests count open files


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Servers and gateways run on uvloop, whose timers, transports and errors differ from those of asyncio's loop. A
    client runs on the loop of its program."""
    part = item.path.relative_to(Path(__file__).parent).parts[0]
    if part in ("engine", "gateway", "hosting", "service"):
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ServerProcess]":
    """On the built-in checkpoint, for all tests of this process: what one leaves behind, the next one finds."""
    from tests.e2e.server_process import ServerProcess  # processes of few tests need none

    with ServerProcess(tmp_path_factory.mktemp("server") / "log") as process:
        yield process
