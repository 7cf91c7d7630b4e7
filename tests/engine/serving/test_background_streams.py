"""Background streams with real workers: they say the same as alone, leave places to others, and give way to them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
import pytest_asyncio

from sonorant.engine import (
    BUILTIN_VOICE_DIR,
    EngineConfig,
    EnginePool,
    EngineState,
    EngineStream,
    PcmChunk,
    SynthesisParams,
    start_here,
)
from sonorant.engine.ipc.handed import Packets
from sonorant.engine.ipc.messages import Command, OpenStream
from sonorant.engine.serving.keeping import KeptStream
from sonorant.engine.serving.owner_link import Verdicts
from sonorant.engine.serving.placement import Pair, Placement
from sonorant.engine.types import Int16Array
from tests.engine.speech import listen, speech

NUM_SLOTS = 4
LONG = "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve."
TEXTS = ("Hello there.", "Good morning, how are you?", "It is cold today.", "Where is the station?")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines() -> AsyncIterator[EnginePool]:
    config = EngineConfig.of(
        BUILTIN_VOICE_DIR, num_slots=NUM_SLOTS, max_queued_streams=NUM_SLOTS, max_context=512, cpu_threads=1
    )
    engines = await start_here([config])
    await engines.tried()
    yield engines
    await engines.close()


def wanted(engines: EnginePool, seed: int) -> SynthesisParams:
    return speech(engines._pairs[0], seed=seed)


def opened(engines: EnginePool, seed: int, text: str, **how: Any) -> EngineStream:
    stream = engines.open(wanted(engines, seed), **how)
    stream.push_text(text, is_last=True)
    return stream


async def codes_of(engines: EnginePool, stream: EngineStream, *taken: PcmChunk) -> Int16Array:
    """All codes, granting what was taken."""
    async with stream:
        num_taken = sum(chunk.num_frames for chunk in taken)
        if taken:
            stream.grant(num_taken)
        rest = await listen(stream, engines.info.frame_samples, next_frame=num_taken)
        return np.concatenate([chunk.codes for chunk in (*taken, *rest.chunks)])


async def first_chunk(stream: EngineStream) -> PcmChunk:
    event = await asyncio.wait_for(stream.next_event(), 60)
    assert isinstance(event, PcmChunk)
    return event


@pytest.mark.asyncio(loop_scope="module")
async def test_together_with_others_all_say_the_same_as_alone(engines: EnginePool) -> None:
    texts = (LONG, *TEXTS)
    alone = [await codes_of(engines, opened(engines, seed, text)) for seed, text in enumerate(texts)]
    streams = [opened(engines, seed, text, background=seed % 2 == 0) for seed, text in enumerate(texts)]
    together = await asyncio.gather(*(codes_of(engines, stream) for stream in streams))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.asyncio(loop_scope="module")
async def test_where_others_take_all_slots_a_background_stream_goes_on_behind_them(
    engines: EnginePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic, sent = engines._pairs[0]._traffic, list[Command]()
    send = traffic.publish

    def send_and_note(command: Command) -> None:
        sent.append(command)
        send(command)

    monkeypatch.setattr(traffic, "publish", send_and_note)
    alone = await codes_of(engines, opened(engines, 0, LONG))
    sent.clear()
    background = opened(engines, 0, LONG, background=True, credit_frames=12)
    begun = await first_chunk(background)
    assert begun.num_frames == 12, "no small first chunk"
    others = [opened(engines, 1 + n, text, credit_frames=1) for n, text in enumerate(TEXTS)]
    firsts = [await first_chunk(stream) for stream in others]  # each has a slot, and keeps it for lack of credit
    rest = asyncio.create_task(codes_of(engines, background, begun))
    for stream, first in zip(others, firsts, strict=True):
        assert len(await codes_of(engines, stream, first)) > 1
    np.testing.assert_array_equal(await rest, alone)
    openings = [command for command in sent if isinstance(command, OpenStream) and command.sampling.seed == 0]
    assert [opening.is_background for opening in openings] == [True, True]
    known = openings[1].known_codes
    assert known is not None and len(known) == 12


@dataclass(eq=False)
class FakeStream:
    is_background: bool
    is_runnable: bool = True
    is_stored: bool = False

    def stop(self) -> bool:
        return False


@dataclass
class FakePair:
    room: int = 0
    begun: list[object] = field(default_factory=list)
    resting: set[object] = field(default_factory=set)
    state: EngineState = EngineState.READY
    is_standby: bool = False
    num_places: int = 0

    def add_stream(self, stream: object) -> None: ...

    def rest(self, stream: object) -> None:
        self.resting.add(stream)

    def room_for(self, stream: object, *, queued: bool) -> int:
        return self.room

    def begin(self, stream: object) -> None:
        self.begun.append(stream)
        self.room -= 1


def test_interactive_streams_have_a_place_again_before_background_streams() -> None:
    pair = FakePair()
    placement = Placement([cast("Pair", pair)], Verdicts(cast("Packets", None)), lambda waits: None)
    background, one, other = streams = [
        FakeStream(is_background=True),
        FakeStream(is_background=False),
        FakeStream(is_background=False),
    ]
    for stream in streams:
        placement.add(cast("KeptStream", stream), cast("Pair", pair))
        placement.on_yielded(cast("KeptStream", stream))
    pair.room = 2
    placement.place_waiting()
    assert pair.begun == [one, other]
    pair.room = 1
    placement.place_waiting()
    assert pair.begun == [one, other, background]
