"""Has the kernels of worker pairs compiled on all cores while the workers load, so that these find them.

A process of its own lists and compiles them (`sonorant.engine.tools.kernels`). Workers load their weights meanwhile,
then wait for it and compile what is still missing. What was compiled is noted beside the code, so that the next start
need not look.
"""

import asyncio
import hashlib
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path

from sonorant.engine.card.card import Card
from sonorant.engine.card.driver import find_card
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.fork_server import WORKERS
from sonorant.engine.kernels.folder import being_filled, cache_folder
from sonorant.machine import num_cores

log = logging.getLogger(__name__)

MODULE = "sonorant.engine.tools.kernels"  # which knows the workers, and is known by nobody
KERNELS = Path(__file__).parents[1] / "kernels"
NOTE = "sonorant-"  # with which the names of notes begin


@dataclass(frozen=True, slots=True)
class Wanted:
    """Kernels to compile: those of a pair with these settings on this card."""

    config: EngineConfig
    card: Card

    def note(self) -> Path:
        """The file that says what was compiled, and how long that took; there once everything was."""
        sources = [path.read_bytes() for path in sorted(KERNELS.rglob("*")) if path.suffix in (".py", ".cu", ".cuh")]
        config, card, talker, codec = self.config, self.card, self.config.talker, self.config.code2wav
        sizes = (
            *(config.model, config.dtype, talker.weights, talker.num_slots, talker.max_prefill_rows),
            *(talker.page_size, talker.max_context, codec.dtype, codec.chunk_ramp, codec.max_decode_batch),
        )
        offers = (card.architecture, card.multiprocessors, card.shared_bytes, card.has_clusters, card.capability)
        made_with = [_version(name) for name in ("torch", "triton", "cuda-bindings", "nvidia-cuda-nvrtc")]
        key = repr((sources, sizes, offers, made_with))
        return cache_folder() / f"{NOTE}{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True, slots=True)
class Noted:
    num_kernels: int
    seconds: float


def wanted_by(configs: Sequence[EngineConfig]) -> list[Wanted]:
    """Return whose kernels differ. `configs`: with a number for every AUTO. Blocks for some milliseconds."""
    wanted: dict[Path, Wanted] = {}
    for config in configs:
        if (card := find_card(config.talker.device)) is not None:
            each = Wanted(config, card)
            wanted.setdefault(each.note(), each)
    return list(wanted.values())


def noted(wanted: Wanted) -> Noted | None:
    """Return what was noted about these kernels; None if they have not all been compiled."""
    return _read(wanted.note())


def last_noted() -> Noted | None:
    """Return what was noted last, for whichever settings."""
    with suppress(OSError, ValueError):  # ValueError: there is none
        return _read(max(cache_folder().glob(f"{NOTE}*.json"), key=lambda path: path.stat().st_mtime))
    return None


def _read(path: Path) -> Noted | None:
    with suppress(OSError, ValueError, TypeError):
        return Noted(**json.loads(path.read_text()))
    return None


def note(wanted: Wanted, about: Noted) -> None:
    with suppress(OSError):  # the next start looks again
        wanted.note().write_text(json.dumps(asdict(about)))


@asynccontextmanager
async def compiling(configs: Sequence[EngineConfig]) -> AsyncIterator[None]:
    """Inside the block, kernels that are not there yet are being compiled."""
    missing = [each for each in await asyncio.to_thread(wanted_by, configs) if noted(each) is None]
    if not missing:
        yield
        return
    log.info("compiling kernels on %d cores, for the first start with these settings", num_cores())
    filling = ExitStack()
    filling.enter_context(being_filled())
    task = asyncio.create_task(_compile(missing, filling), name="kernels")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        filling.close()  # if the task had not begun


async def _compile(wanted: Sequence[Wanted], filling: ExitStack) -> None:
    with filling:
        WORKERS.hold()
        filling.callback(WORKERS.release)
        config = wanted[0].config
        try:
            child = await WORKERS.fork("kernels", run, (MODULE, wanted), config.environment(), config.start_timeout_s)
        except OSError as error:
            log.warning("kernels are not compiled ahead: %s", error)
            return
        filling.callback(child.close)
        filling.callback(_kill_session, child.pid)
        await child.dead()


def _kill_session(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def run(module: str, wanted: Sequence[Wanted], ready: Connection) -> None:
    """Entry of the process."""
    ready.close()
    os.setsid()  # so that all its processes can be ended together
    import_module(module).compile_wanted(wanted)


def _version(name: str) -> str:
    with suppress(PackageNotFoundError):
        return version(name)
    return ""
