"""The server process: settings, engine, server, signals, in this order."""

import asyncio
import logging
import signal
import sys

import uvloop

from engine import EngineError, EnginePool, EngineState
from service import doctor, logs
from service.admin_port import ChannelzMissing
from service.api_keys import ApiKeysError, new_key
from service.config import ServiceConfig, parse_args
from service.errors import VoiceStoreFailed
from service.server import CannotListen, Server
from service.tls import TlsError
from service.tracing import TracingMissing

log = logging.getLogger("service")


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
    try:
        server = Server(config)
    except (CannotListen, ApiKeysError, TlsError, VoiceStoreFailed, ChannelzMissing, TracingMissing) as error:
        log.error("%s", error)
        return 1
    states: asyncio.Queue[EngineState] = asyncio.Queue()
    try:
        engine = await EnginePool.start(config.engines, states.put_nowait, mps=config.mps)
    except EngineError as error:
        log.error("cannot start the engine: %s", error)
        return 1
    try:
        loading = False
        return await server.run(engine, states, drain)
    finally:
        await engine.close()


def main() -> None:
    match sys.argv[1:]:
        case ["new-key", name]:
            code = _new_key(name)
        case ["new-key", *_]:
            print("sonorant-server: new-key takes a NAME: of the caller who gets the key", file=sys.stderr)
            code = 2
        case ["doctor", *settings]:
            code = doctor.run(parse_args(settings))
        case _:
            code = _serve(parse_args())
    sys.exit(code)


def _serve(config: ServiceConfig) -> int:
    logs.set_up()
    try:
        return uvloop.run(serve(config))
    except asyncio.CancelledError:
        log.warning("stopped at once by a signal")
        return 1


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


if __name__ == "__main__":
    main()
