"""What the owner says of its server processes, over real ports of theirs."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sonorant.service.operations.metrics_port import ready_text, serve_metrics
from sonorant.service.operations.process_metrics import ready
from tests.free_port import free_port

TYPO = "keys.toml, [agent]: unknown max_sesions"


@asynccontextmanager
async def process(says: str) -> AsyncIterator[int]:
    async def metrics() -> bytes:
        return b""

    async def own_ready() -> str:
        return says

    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with serve_metrics(listening, metrics, own_ready):
            yield listening.getsockname()[1]


async def test_the_owner_is_ready_if_one_process_is_and_tells_each_warning_once() -> None:
    well, warned = ready_text([]), ready_text([TYPO])
    async with process("") as starting, process(well) as first, process(warned) as second, process(warned) as third:
        assert await ready([starting]) == await ready([free_port()]) == await ready([]) == ""
        assert await ready([starting, first]) == "ready\n"
        assert await ready([starting, first, second, third]) == f"ready\nwarning: {TYPO}\n"
