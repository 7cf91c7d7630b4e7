"""A channel to the server that all tests of a process share."""

from collections.abc import AsyncIterator

import grpc
import pytest

from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub


@pytest.fixture
async def channel(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> Stub:
    return Stub(channel)
