"""Streams that rest take no place, and not the last ones when they want one again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig, EngineStream, FinishReason
from sonorant.engine.serving.keeping import KeptStream
from sonorant.engine.serving.places import Places
from tests.engine.one_engine import start_engine
from tests.engine.speech import listen, speech

HEAVY, OTHER, NOBODY = 1, 2, 0
NUM_ALL, NUM_LAST = 16, 2


@dataclass(eq=False)
class FakeStream:
    caller: int
    is_stored: bool = False
    is_background: bool = False


def streams(num: int, caller: int, *, is_stored: bool = False) -> list[KeptStream]:
    return [cast("KeptStream", FakeStream(caller, is_stored)) for _ in range(num)]


def test_what_is_taken_and_given_back_adds_up() -> None:
    places, some, stored = Places(), streams(3, HEAVY), streams(2, NOBODY, is_stored=True)
    for stream in (*some, *stored):
        places.take(stream)
    assert (places.num_taken, places.num_stored) == (3, 2)
    places.rest(some[0])
    places.rest(some[1])
    assert places.num_taken == 1 and places.resting == {some[0], some[1]}
    places.take(some[0])
    for stream in (*some, *stored):
        places.leave(stream)
    assert (places.num_taken, places.num_stored, places.resting) == (0, 0, set())


def test_who_has_half_of_the_places_leaves_the_last_ones_to_others() -> None:
    places, heavy, others, nobody = Places(), streams(20, HEAVY), streams(2, OTHER), streams(20, NOBODY)
    for stream in (*heavy, *others, *nobody):
        places.take(stream)
        places.rest(stream)
    for stream in heavy[: NUM_ALL // 2]:
        assert places.num_spared(stream, NUM_ALL) == 0
        places.take(stream)
    assert places.num_spared(heavy[-1], NUM_ALL) == NUM_LAST
    assert places.num_spared(others[0], NUM_ALL) == 0
    for stream in nobody[: NUM_ALL // 2]:
        places.take(stream)
    assert places.num_spared(nobody[-1], NUM_ALL) == 0
    places.leave(heavy[0])
    assert places.num_spared(heavy[-1], NUM_ALL) == 0


def test_a_stream_that_has_a_place_spares_none() -> None:
    places, heavy = Places(), streams(NUM_ALL, HEAVY)
    for stream in heavy:
        places.take(stream)
    assert places.num_spared(heavy[0], NUM_ALL) == 0


def test_a_background_stream_always_leaves_an_eighth() -> None:
    (stream,) = streams(1, NOBODY)
    assert Places().num_spared(stream, NUM_ALL) == 0
    assert Places().num_spared(cast("KeptStream", FakeStream(NOBODY, is_background=True)), NUM_ALL) == NUM_LAST


async def until(happens: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not happens():  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0.01)


async def test_streams_that_rested_leave_room_for_newcomers_and_are_all_spoken_in_the_end() -> None:
    config = EngineConfig.of(model=BUILTIN_VOICE_DIR, num_slots=4, max_queued_streams=4, max_context=256, cpu_threads=1)
    engine = await start_engine(config)
    try:

        def opened(caller: int) -> EngineStream:
            stream = engine.open(speech(engine, seed=1, max_frames=12), caller=caller)
            stream.push_text("Well then, ")
            return stream

        heavy = [opened(HEAVY) for _ in range(8)]
        await until(lambda: len(engine.resting) == 4)
        for _ in range(3):
            heavy.append(opened(HEAVY))
        await until(lambda: len(engine.resting) >= 7)
        for stream in heavy:
            stream.push_text("here we are.")
            stream.end_text()
        assert engine.num_places == 7 and len(engine.resting) == 4, "one place of eight is left"
        newcomer = opened(OTHER)
        newcomer.end_text()
        heard = await asyncio.gather(*(listen(each, engine.info.frame_samples) for each in (newcomer, *heavy)))
        assert {each.end.reason for each in heard} <= {FinishReason.COMPLETED, FinishReason.MAX_FRAMES}
        assert all(each.num_frames for each in heard)
        assert engine.num_places == 0
    finally:
        await engine.close()
