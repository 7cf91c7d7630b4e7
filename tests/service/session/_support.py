"""Sessions as the tests of this folder, and the fuzzer, run them."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc
import numpy as np

from sonorant.engine import EngineState
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAME_SAMPLES, FRAMES_PER_CHAR, frame_codes
from tests.service.harness import (
    Served,
    Transcript,
    codes_told,
    eventually,
    read_all,
    read_until,
)
from tests.service.scripts import SEED, Plan, play

Trouble = Callable[[Served, FakeEngine], Awaitable[None]]


async def run(stub: Any, plan: Plan, rng: random.Random, *, may_end: bool) -> Transcript | None:
    async def after_write() -> None:
        if rng.random() < 0.3:
            await asyncio.sleep(rng.random() * 0.03)

    async def after_read() -> None:
        """Read on at once."""

    return await play(stub, plan, after_write=after_write, after_read=after_read, may_end=may_end)


async def none(server: Served, engine: FakeEngine) -> None:
    """Nothing happens."""


async def workers_die(server: Served, engine: FakeEngine) -> None:
    await eventually(lambda: engine.num_opened > 0, True)  # before it has served, a server refuses calls
    for _ in range(3):
        await asyncio.sleep(0.1)
        engine.enter(EngineState.RESTARTING)
        await asyncio.sleep(0.02)
        engine.enter(EngineState.READY)


async def converse(
    server: Served, requests: Iterable[speak_pb2.SpeakRequest | None]
) -> AsyncIterator[speak_pb2.SpeakResponse]:
    call = server.stub.Speak()
    for request in requests:
        if request is not None:
            await call.write(request)
    await call.done_writing()
    try:
        while (response := await call.read()) is not grpc.aio.EOF:
            yield response
    finally:
        call.cancel()


FRAME_BYTES = FRAME_SAMPLES * 2


def settings(mode: int = 0, lead_ms: int = 0, **synthesis: Any) -> speak_pb2.SpeakConfig:
    return speak_pb2.SpeakConfig(
        synthesis=synthesis_pb2.SynthesisConfig(sampling={"seed": SEED}, **synthesis),
        text_policy={"mode": mode},
        max_lead_ms=lead_ms,
        resumable=True,
        timestamps=1,
    )


def revise(from_char: int, text: str, utterance_id: str = "") -> speak_pb2.SpeakRequest:
    return speak_pb2.SpeakRequest(utterance_id=utterance_id, revise={"from_char": from_char, "text": text})


def revised(transcript: Transcript) -> list[speak_pb2.Revised]:
    return [each.revised for each in transcript.responses if each.HasField("revised")]


class Talk:
    """One session, written and read by turns."""

    def __init__(self, server: Served, config: speak_pb2.SpeakConfig) -> None:
        self.call: Any = server.stub.Speak()
        self.transcript = Transcript()
        self._config = config

    async def __aenter__(self) -> "Talk":
        await self.call.write(speak_pb2.SpeakRequest(config=self._config))
        await read_until(self.call, self.transcript, "session")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.call.cancel()

    async def write(self, *requests: speak_pb2.SpeakRequest) -> None:
        for request in requests:
            await self.call.write(request)

    async def revise(self, from_char: int, text: str) -> speak_pb2.Revised:
        await self.write(revise(from_char, text))
        await read_until(self.call, self.transcript, "revised")
        return revised(self.transcript)[-1]

    async def hear(self, num_frames: int) -> None:
        while len(self.pcm) < num_frames * FRAME_BYTES:
            await read_until(self.call, self.transcript, "audio")

    async def finish(self) -> Transcript:
        await self.call.done_writing()
        return await read_all(self.call, self.transcript)

    @property
    def pcm(self) -> bytes:
        return self.transcript.pcm.get("u1", b"")


def check_codes(transcript: Transcript, text: str) -> None:
    """They are those of what was heard, and no others."""
    frames = [frame_codes(text, frame) for frame in range(len(text) * FRAMES_PER_CHAR)]
    assert codes_told(transcript.responses) == np.array(frames, "<u2").tobytes()
