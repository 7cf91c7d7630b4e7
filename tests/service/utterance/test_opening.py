"""Streams are opened in the callers' shares of the event loop: so many per turn of the loop, callers in rotation."""

import asyncio
from collections import Counter
from itertools import count
from typing import Any

import numpy as np

from sonorant.service.access import api_keys
from sonorant.service.admission.ledger import Ledger
from sonorant.service.admission.reservations import Reservations
from sonorant.service.calls.loop_share import PER_TURN_S, LoopShare
from sonorant.service.pacing.pacer import Playout
from sonorant.service.utterance.allowance import Allowance
from sonorant.service.utterance.delivery import SILENT_FRAMES
from sonorant.service.utterance.resumption import KnownSegment, Resumption
from sonorant.service.utterance.utterance import Beginning, Utterance
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAMES_PER_CHAR, frame_codes, spoken
from tests.service.fake_streams import FakeStream
from tests.service.utterance._support import NO_PHRASES, Caller, Heard, spec

NUM = 20  # utterances, all of which could begin in the same turn
AT_MOST = 2  # opened between two counts of turns, which are not taken at the same place in each turn


class Watched(FakeEngine):
    """Tells in which turn of the loop, and for which caller, each stream was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.opened_in: Counter[int] = Counter()
        self.streams: list[FakeStream] = []

    def open(self, *args: Any, **kwargs: Any) -> FakeStream:
        stream = super().open(*args, **kwargs)
        self.opened_in[self.turn] += 1
        self.streams.append(stream)
        return stream


class Scene:
    def __init__(self) -> None:
        self.engine = Watched()
        self.reservations = Reservations(self.engine, Ledger(), lambda: 2)  # type: ignore[arg-type]
        ticks = count()
        self.share = LoopShare(lambda: next(ticks) * PER_TURN_S)  # each piece of work takes what a turn has

    def of(self, caller: str, resumption: Resumption | None = None, **config: Any) -> Utterance:
        reservations = self.reservations.of(api_keys.Caller(caller))
        allowance = Allowance(reservations, NO_PHRASES, self.share.of(caller), 4096, Caller().charge)
        return Utterance("u", spec(self.engine, **config), allowance, Beginning(Playout(), resumption=resumption))

    async def hear(self, utterances: list[Utterance]) -> list[bytes]:
        """All of them, begun in the same turn."""
        heard = [Heard() for _ in utterances]
        counting = asyncio.create_task(self._count_turns())
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for one, ear in zip(utterances, heard, strict=True):
                tasks.create_task(one.speak(ear.send))
        counting.cancel()
        return [ear.pcm for ear in heard]

    async def _count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.engine.turn += 1


def write(one: Utterance, *pieces: str) -> Utterance:
    for piece in pieces:
        one.push(piece)
    one.end()
    return one


async def test_of_many_that_begin_at_once_each_turn_opens_as_many_as_it_has_time_for() -> None:
    scene = Scene()
    assert await scene.hear([write(scene.of("a"), "Hello.") for _ in range(NUM)]) == [spoken("Hello.", 7)] * NUM
    assert sum(scene.engine.opened_in.values()) == NUM
    assert max(scene.engine.opened_in.values()) <= AT_MOST


async def test_callers_take_turns_at_opening() -> None:
    scene = Scene()
    await scene.hear([write(scene.of("a"), "Hello.") for _ in range(NUM)] + [write(scene.of("b"), "Hello.")])
    assert scene.engine.callers.index(api_keys.Caller("b").number) <= 2


async def test_streams_that_are_set_back_at_once_are_opened_in_turn_too() -> None:
    scene = Scene()
    scene.engine.silent_from = {7: 4}
    utterances = [write(scene.of("a"), "Hello, this is a long text.") for _ in range(NUM)]
    await scene.hear(utterances)
    assert [one.statistics.num_heals for one in utterances] == [1] * NUM
    assert sum(scene.engine.opened_in.values()) == 2 * NUM
    assert max(scene.engine.opened_in.values()) <= AT_MOST


async def test_text_that_came_in_many_pieces_goes_to_a_new_stream_in_one() -> None:
    scene = Scene()
    assert await scene.hear([write(scene.of("a"), *["a "] * 500)]) == [spoken("a " * 500, 7)]
    assert [stream.num_pushed for stream in scene.engine.streams] == [1]


async def test_audio_that_the_listener_has_is_skipped_in_small_pieces() -> None:
    text, scene = "a" * 100, Scene()
    codes = np.array([frame_codes(text, k) for k in range(len(text) * FRAMES_PER_CHAR)], np.int16)
    resumption = Resumption(received_samples=2**40, segments=(KnownSegment(codes, complete=False),))
    await scene.hear([write(scene.of("a", resumption), text)])
    assert scene.engine.turn >= (len(codes) - 1) // SILENT_FRAMES
