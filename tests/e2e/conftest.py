"""One server on the built-in checkpoint for all tests of this folder: what one leaves behind, the next one finds."""

from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "log") as process:
        yield process


@pytest.fixture
async def channel(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> Stub:
    return Stub(channel)
