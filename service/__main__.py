"""The server process: settings, engine, server, signals, in this order."""

import asyncio
import logging
import signal
import sys

import uvloop

from engine import Engine, EngineError, EngineState
from service import logs
from service.api_keys import ApiKeysError
from service.config import ServiceConfig, parse_args
from service.server import CannotListen, Server
from service.tls import TlsError

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
    except (CannotListen, ApiKeysError, TlsError) as error:
        log.error("%s", error)
        return 1
    states: asyncio.Queue[EngineState] = asyncio.Queue()
    try:
        engine = await Engine.start(config.engine, states.put_nowait)
    except EngineError as error:
        log.error("cannot load %s: %s", config.engine.model, error)
        return 1
    try:
        loading = False
        return await server.run(engine, states, drain)
    finally:
        await engine.close()


def main() -> None:
    config = parse_args()
    logs.set_up()
    try:
        code = uvloop.run(serve(config))
    except asyncio.CancelledError:
        log.warning("stopped at once by a signal")
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
