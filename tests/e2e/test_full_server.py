"""A full server of two processes: who waits for a place, and who goes first. Real workers."""

import asyncio
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from sonorant.client import AudioChunk, Queued, ServerBusy, SpeechClient, UtteranceDone, scheduling, synthesis_config
from tests.e2e.test_processes import ServerProcesses
from tests.service.harness import assert_same_audio, eventually

CONFIG = synthesis_config(seed=1)
TEXT = "A short text."
LONG = "This takes so long that nobody else has a place before it is cancelled. " * 4
NUM_PLACES = 4  # two slots, and two that wait for one in the engine


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
async def test_calls_wait_for_a_place_whichever_process_has_it(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path / "log", "--num-slots", "2", "--max-queued-streams", "2") as server:
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
