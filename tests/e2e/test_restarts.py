"""The only server is killed in the middle of speech and started again: nothing is lost, and no cancel is."""

from collections.abc import Iterator

import pytest

from sonorant.client import SpeechClient
from tests.e2e.restart_rounds import RestartedServer, restart_round, undisturbed


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartedServer]:
    server = RestartedServer(tmp_path_factory.mktemp("restarted"))
    yield server
    server.stop()


@pytest.mark.slow
async def test_every_utterance_ends_once_as_if_the_server_had_not_been_away(
    server: RestartedServer,
) -> None:
    """`python -m tests.measure.restarts` does fifty rounds."""
    async with SpeechClient(server.address) as client:
        known = await undisturbed(client)
        await restart_round(client, server, known, seed=1)
