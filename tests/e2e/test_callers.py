"""Callers who share real workers."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest

from sonorant.tts.v1.text_to_speech_service_pb2 import (
    GetCapabilitiesRequest,
    SynthesizeRequest,
    SynthesizeStreamRequest,
)
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub
from tests.service.keys import ADA, BOB, bearer, table

pytestmark = pytest.mark.slow

NUM_SLOTS = 8
NUM_PAGES, MAX_FRAMES = 600, 2300  # of which a text of 40 sentences needs 185 pages; one of default length, 65, so that
# eight of them find room in all slots
HEARD_LONG = 10  # messages
SENTENCE = "This is a long day, and I am here with you. "
LONG = SENTENCE * 80


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "keys.toml").write_text(table("ada", ADA) + table("bob", BOB))
    slots = ("--num-slots", str(NUM_SLOTS), "--max-queued-streams", str(NUM_SLOTS), "--num-pages", str(NUM_PAGES))
    with ServerProcess(folder / "log", "--api-keys", str(folder / "keys.toml"), *slots) as process:
        yield process


async def test_one_callers_long_texts_keep_nobody_else_waiting(server: ServerProcess) -> None:
    """They would fill all slots and the queue behind them for minutes."""
    await assert_a_short_text_of_another_waits_for_none_of(
        [SynthesizeStreamRequest(text=LONG) for _ in range(12)], server
    )


async def test_one_callers_large_frame_limits_keep_nobody_else_waiting(server: ServerProcess) -> None:
    """Three of its texts would hold nearly all KV pages, and few of the slots."""
    requests = [SynthesizeStreamRequest(text=f"{number} days. {SENTENCE * 40}") for number in range(4)]
    for request in requests:
        request.config.sampling.max_frames = MAX_FRAMES
        request.config.sampling.ignore_eos = True
    await assert_a_short_text_of_another_waits_for_none_of(requests, server)


async def assert_a_short_text_of_another_waits_for_none_of(
    requests: Sequence[SynthesizeStreamRequest], server: ServerProcess
) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = Stub(channel)

        num_heard = [0] * len(requests)

        async def read_long(index: int) -> None:
            call: Any = stub.SynthesizeStream(requests[index], metadata=bearer(ADA))
            async for _ in call:
                num_heard[index] += 1

        hers = [asyncio.create_task(read_long(index)) for index in range(len(requests))]
        asked = GetCapabilitiesRequest()
        # Long after two of hers speak the texts of the others have come to the talker, too.
        while sum(num >= HEARD_LONG for num in num_heard) < 2 or (
            await stub.GetCapabilities(asked, metadata=bearer(BOB))
        ).active_streams < len(hers):
            await asyncio.sleep(0.02)
            assert not any(task.done() for task in hers)
        his = stub.Synthesize(SynthesizeRequest(text="Hello."), metadata=bearer(BOB))
        assert (await his).audio
        assert not any(task.done() for task in hers)
        for task in hers:
            task.cancel()
        await asyncio.wait(hers)
        while (await stub.GetCapabilities(asked, metadata=bearer(BOB))).active_streams:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
