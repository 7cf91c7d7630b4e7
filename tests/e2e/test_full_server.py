"""A full server of two processes: who waits for a place, and who goes first. Real workers."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing

import grpc
import pytest

from sonorant.client import (
    AudioChunk,
    Queued,
    ServerBusy,
    SpeechClient,
    UtteranceDone,
    UtteranceStarted,
    scheduling,
    synthesis_config,
)
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_COMPLETED
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.e2e._support import CONFIG as SEEDED
from tests.e2e._support import MOST_CONNECTIONS, ONE_CONNECTION, ServerProcesses, clients_of_each
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


class Waiting:
    """Calls that wait for a place: how many go ahead of each, and in which order they got theirs."""

    def __init__(self) -> None:
        self.num_ahead: dict[str, int] = {}
        self.begun: list[str] = []

    async def hear(self, name: str, client: SpeechClient, *, batch: bool = False) -> bytes:
        patient = scheduling(max_wait_ms=60_000, batch=batch)
        audio = b""
        async for payload in client.stream(TEXT, CONFIG, scheduling=patient):
            match payload:
                case Queued(num_ahead=num_ahead):
                    self.num_ahead[name] = num_ahead
                case UtteranceStarted():
                    self.begun.append(name)
                case AudioChunk(data=data):
                    audio += data
        return audio

    async def begin(self, name: str, client: SpeechClient, *, batch: bool = False) -> "asyncio.Task[bytes]":
        """Return the call once it waits."""
        hearing = asyncio.create_task(self.hear(name, client, batch=batch))
        await eventually(lambda: name in self.num_ahead, True)
        return hearing


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_calls_wait_for_a_place_whichever_process_has_it_and_background_ones_behind_others(
    server: ServerProcesses,
) -> None:
    async with AsyncExitStack() as stack:
        one, other = await clients_of_each(stack, server, 3)
        whole = (await one[0].synthesize(TEXT, CONFIG)).audio
        taking = [asyncio.create_task(listen(client)) for client in (*one[:2], *other[:2])]
        await eventually(lambda: server.value("tts_pair_streams"), NUM_PLACES)
        with pytest.raises(ServerBusy, match="all"):
            await one[0].synthesize(TEXT, CONFIG)
        waiting = Waiting()
        hearing = [
            # On the connection of the next two, so that it hears of their beginnings in the order of the server's.
            await waiting.begin("background", one[2], batch=True),
            await waiting.begin("first", one[2]),
            await waiting.begin("second", one[2]),
            await waiting.begin("of the other", other[2]),
        ]
        # Each process has a queue of its own.
        assert waiting.num_ahead == {"background": 0, "first": 0, "second": 1, "of the other": 0}
        assert not waiting.begun
        for num_begun, task in enumerate(taking, 1):
            task.cancel()
            await eventually(lambda most=num_begun: len(waiting.begun) >= most, True)
        async with asyncio.timeout(60):
            for audio in await asyncio.gather(*hearing):
                assert_same_audio(audio, whole)
        assert [name for name in waiting.begun if name != "of the other"] == ["first", "second", "background"]
        await eventually(lambda: server.value("tts_pair_streams"), 0)


async def test_all_processes_together_let_in_as_many_as_there_are_places(server: ServerProcesses) -> None:
    """Places are taken by open utterances, whichever process they are at; both refuse what comes then."""
    async with AsyncExitStack() as stack:
        one, other = await clients_of_each(stack, server, 1)
        sessions = []
        for client in (*one, *other, *other, *other):
            session = await stack.enter_async_context(client.speak(synthesis_config(seed=7, do_sample=True)))
            await session.send_text("Words may come one by one, ")
            sessions.append(session)
        await eventually(lambda: server.value("tts_pair_streams"), 4)
        for number in range(2):
            assert await refused_at(server, number) == grpc.StatusCode.RESOURCE_EXHAUSTED
        for session in sessions:
            await session.finish()
            reasons = [e.payload.reason async for e in session if isinstance(e.payload, UtteranceDone)]
            assert reasons == [FINISH_REASON_COMPLETED]
        await eventually(lambda: server.value("tts_pair_streams"), 0)


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
