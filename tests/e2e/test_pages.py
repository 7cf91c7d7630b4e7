"""Few KV pages, as a large model has them for many slots: callers who set no limit of frames all speak at once."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from sonorant.tts.v1 import speak_pb2
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub, Transcript, assert_same_audio, end, read_all, say, speak

# One stream of as many frames as the model may make needs 256 pages.
FEW = ("--num-slots", "8", "--num-pages", "300")
SENTENCE = "This is a long day, and I am here with you. "
WORDS = [f"{word} " for word in (SENTENCE * 6).split()]


@pytest.mark.slow
async def test_all_slots_speak_at_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log", *FEW) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            # Paced, each takes as long as it is heard.
            paced = speak_pb2.SpeakRequest(config=speak_pb2.SpeakConfig(max_lead_ms=500))
            calls: list[Any] = [Stub(channel).Speak() for _ in range(8)]
            for number, call in enumerate(calls):
                for request in (paced, say(f"{number} days. {SENTENCE * 3}"), end()):
                    await call.write(request)
            begun: set[int] = set()
            ended: list[int] = []

            async def hear(number: int) -> None:
                async for response in calls[number]:
                    if response.HasField("audio") and response.audio.num_samples:
                        begun.add(number)
                    if response.HasField("done"):
                        ended.append(number)
                    if len(begun) == len(calls) or ended:
                        return

            await asyncio.gather(*map(hear, range(8)))
            assert not ended
            for call in calls:
                call.cancel()


@pytest.mark.slow
@pytest.mark.rare
async def test_texts_that_turn_out_long_say_the_same_as_alone(tmp_path: Path) -> None:
    """When they come word by word, none can reserve what all its text will take, and together it is too much."""

    def config(seed: int) -> speak_pb2.SpeakConfig:
        return speak_pb2.SpeakConfig(synthesis={"sampling": {"seed": seed}}, max_lead_ms=0)

    async def speak_by_words(stub: Any, seed: int) -> Transcript:
        call = stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=config(seed)))
        for word in WORDS:
            await call.write(say(word))
            await asyncio.sleep(0.02)
        await call.write(end())
        await call.done_writing()
        return await read_all(call)

    seeds = range(1, 7)
    # All six begin, with five pages each, and each fills 16 or more before it is done.
    with ServerProcess(tmp_path / "log", "--num-slots", "8", "--num-pages", "80") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = Stub(channel)
            alone = [await speak(stub, [config(seed), *map(say, WORDS)]) for seed in seeds[:2]]
            together = await asyncio.gather(*(speak_by_words(stub, seed) for seed in seeds))
    for one, other in zip(alone, together, strict=False):
        assert_same_audio(other.pcm["u1"], one.pcm["u1"])
