"""A server process like `sonorant-server`, with settings and signals; only its engine is made up."""

import asyncio
import signal
import sys

import uvloop

from sonorant import logs
from sonorant.service import server
from sonorant.service.config import parse_args
from sonorant.service.log_filters import LOG_FILTERS
from tests.service.fake_engine import FakeEngine


async def serve() -> int:
    drain = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drain.set)
    return await server.serve(parse_args(), FakeEngine(frame_s=0.002, max_streams=1000).started, drain)


if __name__ == "__main__":
    logs.set_up(*LOG_FILTERS)
    sys.exit(uvloop.run(serve()))
