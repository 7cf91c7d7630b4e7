"""A full server of two processes: who waits for a place, and who goes first. Real workers."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing

import grpc
import pytest

from sonorant.client import AudioChunk, Queued, ServerBusy, SpeechClient, UtteranceDone, scheduling, synthesis_config
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_COMPLETED
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.e2e.test_processes import CONFIG as SEEDED
from tests.e2e.test_processes import MOST_CONNECTIONS, ONE_CONNECTION, ServerProcesses, clients_of_each
from tests.service.harness import Stub, assert_same_audio, eventually

CONFIG = synthesis_config(seed=1)
TEXT = "A short text."
LONG = "This takes so long that nobody else has a place before it is cancelled. " * 4
NUM_PLACES = 4  # two slots, and two that wait for one in the engine


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcesses]:
    log = tmp_path_factory.mktemp("server") / "log"
    with ServerProcesses(log, "--num-slots", "2", "--max-queued-streams", "2") as process:
        yield process


async def listen(client: SpeechClient) -> None:
    async with aclosing(client.stream(LONG, CONFIG, max_lead_ms=200)) as payloads:
        async for _ in payloads:
            pass


async def hear(client: SpeechClient, *, batch: bool = False) -> tuple[int, bytes]:
    """Wait for a place, and return how many went first and the audio."""
    patient = scheduling(max_wait_ms=60_000, batch=batch)
    payloads = [payload async for payload in client.stream(TEXT, CONFIG, scheduling=patient)]
    first, last = payloads[0], payloads[-1]
    assert isinstance(first, Queued) and isinstance(last, UtteranceDone)
    return first.num_ahead, b"".join(payload.data for payload in payloads if isinstance(payload, AudioChunk))


@pytest.mark.timeout(180)
async def test_calls_wait_for_a_place_whichever_process_has_it(server: ServerProcesses) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(SpeechClient(server.address)) for _ in range(NUM_PLACES + 4)]
        whole = (await clients[0].synthesize(TEXT, CONFIG)).audio
        taking = [asyncio.create_task(listen(client)) for client in clients[:NUM_PLACES]]
        await eventually(lambda: server.value("tts_pair_streams"), NUM_PLACES, timeout_s=60)
        with pytest.raises(ServerBusy, match="all"):
            await clients[0].synthesize(TEXT, CONFIG)
        batch = asyncio.create_task(hear(clients[-1], batch=True))
        waiting = [asyncio.create_task(hear(client)) for client in clients[NUM_PLACES:-1]]
        await asyncio.sleep(0.5)
        assert not any(task.done() for task in (batch, *waiting))
        for task in taking:
            task.cancel()
        async with asyncio.timeout(60):
            heard = await asyncio.gather(batch, *waiting)
        for _, audio in heard:
            assert_same_audio(audio, whole)
        await eventually(lambda: server.value("tts_pair_streams"), 0, timeout_s=60)


async def test_all_processes_together_let_in_as_many_as_there_are_places(server: ServerProcesses) -> None:
    """Places are taken by open utterances, whichever process they are at; both refuse what comes then."""
    async with AsyncExitStack() as stack:
        one, other = await clients_of_each(stack, server, 1)
        sessions = []
        for client in (*one, *other, *other, *other):
            session = await stack.enter_async_context(client.speak(synthesis_config(seed=7, do_sample=True)))
            await session.send_text("Words may come one by one, ")
            sessions.append(session)
        await eventually(lambda: server.value("tts_pair_streams"), 4, timeout_s=60)
        for number in range(2):
            assert await refused_at(server, number) == grpc.StatusCode.RESOURCE_EXHAUSTED
        for session in sessions:
            await session.finish()
            reasons = [e.payload.reason async for e in session if isinstance(e.payload, UtteranceDone)]
            assert reasons == [FINISH_REASON_COMPLETED]
        await eventually(lambda: server.value("tts_pair_streams"), 0, timeout_s=60)


async def refused_at(server: ServerProcesses, number: int) -> grpc.StatusCode:
    """The status of a call that this server process refuses. Tries connections until one comes to it."""
    async with AsyncExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            before = server.num_calls(number)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address, ONE_CONNECTION))
            try:
                await Stub(channel).Synthesize(SynthesizeRequest(text="Hello.", config=SEEDED))
            except grpc.aio.AioRpcError as error:
                if server.num_calls(number) > before:
                    return error.code()
    raise AssertionError("no connection came to this process, or it refused nothing")
