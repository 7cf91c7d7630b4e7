"""A server process, which serves gRPC with the workers of its owner. There are one or several of them on the port.

`owner.py` runs it as `python -m sonorant.service.server_process FD`, where FD is a socket to the owner. What the owner
hands over comes on stdin. When stdin closes, the process drains.
"""

import gc
import pickle
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sonorant.engine import EnginePool, EngineState, is_large_on_the_cpu
from sonorant.hosting.addresses import CannotListen
from sonorant.hosting.process import Signals
from sonorant.hosting.tls import TlsError
from sonorant.logs import start
from sonorant.service import server
from sonorant.service.access.api_keys import ApiKeysError
from sonorant.service.audio import opus
from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.handed import Handed
from sonorant.service.operations.admin_port import ChannelzMissing
from sonorant.service.operations.tracing import TracingMissing
from sonorant.service.process import run_service
from sonorant.service.utterance.wanted_phrases import PhrasesFileError

EXPECTED = (CannotListen, ApiKeysError, TlsError, PhrasesFileError, VoiceStoreFailed, ChannelzMissing, TracingMissing)
NAME = "sonorant-server"  # for ps and top


async def serve(handed: Handed, owner: socket.socket, signals: Signals) -> int:
    @asynccontextmanager
    async def start_engine(on_state: Callable[[EngineState], None]) -> AsyncIterator[EnginePool]:
        start.phase("settings")
        if opus.available() and not all(map(is_large_on_the_cpu, handed.config.engines)):
            opus.load()  # on small hosts the first caller who wants Opus waits 0.1 s longer, to save memory
        gc.collect()  # now, while others load the model
        engine = await EnginePool.join(handed.config.engines, owner, on_state)
        try:
            signals.is_loading = False
            yield engine
        finally:
            await engine.close()

    return await server.serve(handed.config, start_engine, signals.drain, ledger=handed.ledger)


def main() -> None:
    with open("/proc/self/comm", "w") as comm:
        comm.write(NAME)
    start.begin("server process")
    start.phase("imports")
    handed: Handed = pickle.load(sys.stdin.buffer)
    owner = socket.socket(fileno=int(sys.argv[1]))
    owner.set_inheritable(False)
    sys.exit(run_service(lambda signals: serve(handed, owner, signals), EXPECTED, sys.stdin.fileno()))


if __name__ == "__main__":
    main()
