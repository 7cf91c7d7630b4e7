"""The server process: subcommands, signals, and the engine and server started from the settings."""

import asyncio
import logging
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import uvloop

from sonorant import logs
from sonorant.engine import EngineError, EnginePool, EngineState, sized
from sonorant.hosting.addresses import CannotListen
from sonorant.hosting.tls import TlsError
from sonorant.service import doctor, processes, server
from sonorant.service.access.api_keys import ApiKeysError, new_key
from sonorant.service.admission.ledger import Ledger
from sonorant.service.config import parse_args
from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.log_filters import LOG_FILTERS
from sonorant.service.operations.admin_port import ChannelzMissing
from sonorant.service.operations.tracing import TracingMissing
from sonorant.service.settings import ServiceConfig
from sonorant.service.speak.receipts import ReceiptKeyError, read_key
from sonorant.service.speak.wanted_phrases import PhrasesFileError
from sonorant.service.voices.migration import Migration, migrate
from sonorant.service.voices.opening import NoVoicesHere, open_named, open_to_read, open_to_rebuild
from sonorant.service.voices.rebuilding import Rebuilt, rebuild

log = logging.getLogger("sonorant.service")

# How long a busy thread, such as Explain's, may hold the interpreter while the event loop wants it. The loop releases
# the interpreter several times per turn, so Python's default of 5 ms would stretch turns to 10 to 20 ms meanwhile.
SWITCH_S = 0.0005


async def serve(
    config: ServiceConfig,
    lifeline: int | None = None,
    owner: socket.socket | None = None,
    ledger: Ledger | None = None,
) -> int:
    """Run until a signal, and return the exit code. The first signal drains (or stops the loading), the second stops
    at once. `lifeline`: a file descriptor whose end counts as a signal. `owner`: a socket to the process that has the
    workers, if that is another one; `ledger`: the one of all server processes.
    """
    config = replace(config, processes=processes.number_of(config))
    drain = asyncio.Event()
    loading = config.processes == 1
    main_task = asyncio.current_task()
    assert main_task is not None

    def on_signal() -> None:
        if loading or drain.is_set():
            main_task.cancel()
        drain.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    if lifeline is not None:

        def on_end() -> None:
            loop.remove_reader(lifeline)
            on_signal()

        loop.add_reader(lifeline, on_end)

    @asynccontextmanager
    async def start_engine(on_state: Callable[[EngineState], None]) -> AsyncIterator[EnginePool]:
        nonlocal loading
        if owner is not None:
            engine = await EnginePool.join(config.engines, owner, on_state)
        else:
            engine = await EnginePool.start(config.engines, on_state, mps=config.mps)
        try:
            loading = False
            yield engine
        finally:
            await engine.close()

    try:
        config = replace(config, receipt_key=config.receipt_key or read_key(config.receipt_key_file))
        if config.processes > 1:
            return await processes.serve(config, drain)
        config = config.with_sizes(await asyncio.to_thread(sized, config.engines))
        return await server.serve(config, start_engine, drain, ledger=ledger)
    except (
        CannotListen,
        ApiKeysError,
        TlsError,
        PhrasesFileError,
        ReceiptKeyError,
        VoiceStoreFailed,
        ChannelzMissing,
        TracingMissing,
        processes.ProcessEnded,
    ) as error:
        log.error("%s", error)
    except EngineError as error:
        log.error("cannot start the engine: %s", error)
    return 1


def main() -> None:
    match sys.argv[1:]:
        case ["new-key", name]:
            code = _new_key(name)
        case ["new-key", *_]:
            print("sonorant-server: new-key takes one NAME, the caller who gets the key", file=sys.stderr)
            code = 2
        case ["doctor", *settings]:
            config = parse_args(settings)
            code = doctor.run(config, processes.number_of(config))
        case ["voices", "migrate", source, target]:
            code = _migrate(source, target)
        case ["voices", "rebuild", folder]:
            code = _rebuild(folder, None)
        case ["voices", "rebuild", folder, "--owner", owner]:
            code = _rebuild(folder, owner)
        case ["voices", *_]:
            print(
                "sonorant-server: use 'voices migrate SOURCE TARGET', each a folder or a URL, or "
                "'voices rebuild FOLDER [--owner NAME]'",
                file=sys.stderr,
            )
            code = 2
        case _:
            code = run(parse_args())
    sys.exit(code)


def run(
    config: ServiceConfig,
    lifeline: int | None = None,
    owner: socket.socket | None = None,
    ledger: Ledger | None = None,
) -> int:
    """Run a server process to its end, and return its exit code; see `serve`."""
    logs.set_up(*LOG_FILTERS)
    sys.setswitchinterval(SWITCH_S)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection takes one, and shells allow few
    try:
        return uvloop.run(serve(config, lifeline, owner, ledger))
    except asyncio.CancelledError:
        log.warning("stopped at once by a signal")
        return 1


def _migrate(source: str, target: str) -> int:
    """Copy voices and return the exit status: 1 if some could not be copied."""

    def copy() -> Migration:
        with closing(open_to_read(source)) as here, closing(open_named(target)) as there:
            return migrate(here, there)

    return _reported(copy)


def _rebuild(folder: str, owner: str | None) -> int:
    """Add the voices of files without rows, and return the exit status: 1 if some files are left without."""

    def add() -> Rebuilt:
        with closing(open_to_rebuild(Path(folder))) as registry:
            return rebuild(registry, owner)

    return _reported(add)


def _reported(work: Callable[[], Migration | Rebuilt]) -> int:
    """Do the work, say what was done to stdout and what was not to stderr, and return the exit status."""
    try:
        done = work()
    except (NoVoicesHere, VoiceStoreFailed) as error:
        print(f"sonorant-server: {error.__cause__ or error}", file=sys.stderr)
        return 1
    for each in done.left:
        print(f"sonorant-server: {each}", file=sys.stderr)
    print(done)
    return 1 if done.left else 0


def _new_key(name: str) -> int:
    """Print the table to stdout, to be appended to the file, and the key, which is stored nowhere, to stderr."""
    try:
        key, table = new_key(name)
    except ApiKeysError as error:
        print(f"sonorant-server: {error}", file=sys.stderr)
        return 2
    print(table)
    print(f"The key of {name}, shown only this once: {key}", file=sys.stderr)
    return 0
