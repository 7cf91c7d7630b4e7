"""The server process: settings, engine, server, signals, in this order."""

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing

import uvloop

from sonorant import logs
from sonorant.engine import EngineError, EnginePool, EngineState, sized
from sonorant.service import doctor, server
from sonorant.service.access.api_keys import ApiKeysError, new_key
from sonorant.service.access.tls import TlsError
from sonorant.service.config import parse_args
from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.log_filters import LOG_FILTERS
from sonorant.service.operations.admin_port import ChannelzMissing
from sonorant.service.operations.tracing import TracingMissing
from sonorant.service.ports import CannotListen
from sonorant.service.settings import ServiceConfig
from sonorant.service.speak.wanted_phrases import PhrasesFileError
from sonorant.service.voices.migration import migrate
from sonorant.service.voices.opening import NoVoicesHere, open_kept, open_named

log = logging.getLogger("sonorant.service")

# How long a thread that works, such as Explain's, may keep the event loop from going on. The loop gives the interpreter
# up several times per turn, so that Python's own 5 ms would make turns of 10 to 20 ms for as long as that thread works.
SWITCH_S = 0.0005


async def serve(config: ServiceConfig) -> int:
    """Run until a signal. The first one drains (or stops the loading), the second one stops at once."""
    drain = asyncio.Event()
    loading = True
    main_task = asyncio.current_task()
    assert main_task is not None

    def on_signal() -> None:
        if loading or drain.is_set():
            main_task.cancel()
        drain.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)

    @asynccontextmanager
    async def start_engine(on_state: Callable[[EngineState], None]) -> AsyncIterator[EnginePool]:
        nonlocal loading
        engine = await EnginePool.start(config.engines, on_state, mps=config.mps)
        try:
            loading = False
            yield engine
        finally:
            await engine.close()

    try:
        config = config.with_sizes(await asyncio.to_thread(sized, config.engines))
        return await server.serve(config, start_engine, drain)
    except (
        CannotListen,
        ApiKeysError,
        TlsError,
        PhrasesFileError,
        VoiceStoreFailed,
        ChannelzMissing,
        TracingMissing,
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
            print("sonorant-server: new-key takes a NAME: of the caller who gets the key", file=sys.stderr)
            code = 2
        case ["doctor", *settings]:
            code = doctor.run(parse_args(settings))
        case ["voices", "migrate", source, target]:
            code = _migrate(source, target)
        case ["voices", *_]:
            print("sonorant-server: voices migrate takes SOURCE and TARGET: folders or URLs", file=sys.stderr)
            code = 2
        case _:
            code = _serve(parse_args())
    sys.exit(code)


def _serve(config: ServiceConfig) -> int:
    logs.set_up(*LOG_FILTERS)
    sys.setswitchinterval(SWITCH_S)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection takes one, and shells allow few
    try:
        return uvloop.run(serve(config))
    except asyncio.CancelledError:
        log.warning("stopped at once by a signal")
        return 1


def _migrate(source: str, target: str) -> int:
    """Status 1 if something is left behind."""
    try:
        with closing(open_kept(source)) as here, closing(open_named(target)) as there:
            done = migrate(here, there)
    except NoVoicesHere as error:
        print(f"sonorant-server: {error}", file=sys.stderr)
        return 1
    except VoiceStoreFailed as error:
        print(f"sonorant-server: {error.__cause__ or error}", file=sys.stderr)
        return 1
    for each in done.left:
        print(f"sonorant-server: {each}", file=sys.stderr)
    print(done)
    return 1 if done.left else 0


def _new_key(name: str) -> int:
    """The table goes to stdout, to be appended to the file; the key, which is nowhere else, to stderr."""
    try:
        key, table = new_key(name)
    except ApiKeysError as error:
        print(f"sonorant-server: {error}", file=sys.stderr)
        return 2
    print(table)
    print(f"The key of {name}, shown this once: {key}", file=sys.stderr)
    return 0
