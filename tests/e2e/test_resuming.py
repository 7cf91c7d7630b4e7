"""A server freezes or is killed in the middle of a sentence, or connections are cut: listeners hear it to its end."""

import asyncio
import signal
from collections.abc import Callable, Iterator

import pytest

from sonorant.client import AudioChunk, Resumed, SpeechClient, UtteranceDone, synthesis_config
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_COMPLETED
from tests.cutting_proxy import CuttingProxy
from tests.e2e.server_process import ServerProcess
from tests.service.harness import assert_same_audio, eventually

TEXT = "Words may come one by one, and none of them is lost. Not even when the server is."
HALF_SECOND_BYTES = 24_000
VOICES = [{"voice": "linden", "do_sample": True, "temperature": 0.7}, {"voice": "wren"}]


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    folder = tmp_path_factory.mktemp("servers")
    running = [ServerProcess(folder / f"log{number}") for number in range(2)]
    yield running
    for server in running:
        server.strike(signal.SIGKILL)
        server.stop()


async def listen(
    client: SpeechClient,
    heard: list[bytes],
    lead_ms: int = 600,
    on_audio: Callable[[], None] = lambda: None,
    **config: object,
) -> int:
    """How often it was resumed."""
    resumed = 0
    async with client.speak(synthesis_config(seed=7, **config), max_lead_ms=lead_ms) as session:
        await session.send_text(TEXT)
        await session.finish()
        async for event in session:
            match event.payload:
                case AudioChunk() as audio:
                    heard.append(audio.data)
                    on_audio()
                case Resumed():
                    resumed += 1
                case UtteranceDone() as done:
                    assert done.reason == FINISH_REASON_COMPLETED
    return resumed


@pytest.mark.slow
@pytest.mark.rare
async def test_listeners_hear_the_end_of_a_sentence_whose_server_froze_or_was_killed(
    servers: list[ServerProcess],
) -> None:
    first, second = servers
    async with SpeechClient(second.address) as client:
        whole: list[list[bytes]] = [[] for _ in VOICES]
        for heard, config in zip(whole, VOICES, strict=True):
            assert await listen(client, heard, lead_ms=0, **config) == 0
    # gRPC goes through these in their order, and from one that is gone to the next.
    async with SpeechClient(f"ipv4:{first.address},{second.address}") as client:
        for struck, fault in ((first, signal.SIGSTOP), (second, signal.SIGKILL)):
            broken: list[list[bytes]] = [[] for _ in VOICES]
            async with asyncio.TaskGroup() as tasks:
                listeners = [
                    tasks.create_task(listen(client, heard, **config))
                    for heard, config in zip(broken, VOICES, strict=True)
                ]
                await eventually(lambda heard=broken: min(map(len, heard)) >= 8, True)
                struck.strike(fault)
            assert min(task.result() for task in listeners) >= 1  # more, if the other was only busy for a while
            for one, other in zip(broken, whole, strict=True):
                assert_same_audio(b"".join(one), b"".join(other))
            first.strike(signal.SIGCONT)


@pytest.mark.slow
async def test_a_listener_whose_connection_is_cut_again_and_again_hears_every_sample_once(
    server: ServerProcess,
) -> None:
    """Whenever another half second has come. `python -m tests.measure.cuts` does it for a minute."""
    voice = VOICES[0]
    async with SpeechClient(server.address) as client:
        whole: list[bytes] = []
        await listen(client, whole, lead_ms=0, **voice)
    async with CuttingProxy(server.port) as proxy, SpeechClient(f"127.0.0.1:{proxy.port}") as client:
        heard: list[bytes] = []
        cuts: list[int] = []  # bytes that had come before

        def cut() -> None:
            num_bytes = sum(map(len, heard))
            if num_bytes - (cuts[-1] if cuts else 0) >= HALF_SECOND_BYTES and proxy.cut():
                cuts.append(num_bytes)

        resumed = await listen(client, heard, on_audio=cut, **voice)
    assert 5 <= resumed <= len(cuts)
    assert_same_audio(b"".join(heard), b"".join(whole))
