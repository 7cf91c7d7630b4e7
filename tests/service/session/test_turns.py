"""Whose turn it is, over the tests' engine and without gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sonorant.service.admission.ledger import Ledger
from sonorant.service.admission.reservations import Reservations
from sonorant.service.calls.loop_share import LoopShare
from sonorant.service.errors import InvalidField
from sonorant.service.pacing.outbox import Outbox
from sonorant.service.pacing.pacer import Playout
from sonorant.service.session.turns import MAX_REMEMBERED, OpenUtterance, Turns
from sonorant.service.utterance.allowance import Allowance
from sonorant.service.utterance.requests import check_synthesis
from sonorant.service.utterance.utterance import Beginning, Utterance
from sonorant.service.voices.choice import VoiceChoice
from sonorant.tts.v1 import synthesis_pb2
from sonorant.tts.v1.speak_pb2 import SpeakResponse
from tests.service.fake_engine import FakeEngine

NO_PHRASES = None


class Session:
    """What a session has of turns."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.outbox: Outbox[SpeakResponse] = Outbox()
        self.part = LoopShare().of("")
        self.turns = Turns(self.outbox, "r-1", self.part)
        self.reservations = Reservations(engine, Ledger())

    def begin(self, utterance_id: str, text: str = "") -> OpenUtterance:
        choice = VoiceChoice(self.engine.info, "voice", voice_id="ada", speaker="ada")
        spec = check_synthesis(synthesis_pb2.SynthesisConfig(), choice, self.engine, "c", non_streaming_default=False)
        allowance = Allowance(self.reservations, NO_PHRASES, self.part, 1000, lambda num_chars: None)
        made = Utterance(utterance_id, spec, allowance, Beginning(Playout()))
        entry = self.turns.begin(made)
        if text:
            self.turns.change(entry, made.push, text)
            self.turns.change(entry, made.end)
        return entry


@asynccontextmanager
async def session(engine: Any) -> AsyncIterator[Session]:
    it = Session(engine)
    async with asyncio.TaskGroup() as tasks:
        it.turns.enter(tasks)
        running = tasks.create_task(it.turns.run())
        try:
            yield it
        finally:
            it.turns.abort()
            for each in (running, *(entry.speaking for entry in it.turns)):
                if each is not None:
                    each.cancel()


async def told(it: Session, until: str) -> list[tuple[str, str]]:
    """What goes out up to the `done` of an utterance, runs of audio as one."""
    kinds: list[tuple[str, str]] = []
    async for response in it.outbox.responses():
        kind = (response.utterance_id, response.WhichOneof("payload"))
        if not kinds or kinds[-1] != kind:
            kinds.append(kind)
        if kind == (until, "done"):
            return kinds
    raise AssertionError("no end")


async def test_the_oldest_is_spoken_first() -> None:
    async with session(FakeEngine()) as it:
        it.begin("a", "One")
        it.begin("b", "Two")
        assert it.turns.current is not None and it.turns.current.id == "a"
        assert it.turns.latest is not None and it.turns.latest.id == "b"
        assert await told(it, "b") == [(who, kind) for who in "ab" for kind in ("started", "audio", "done")]
        assert not it.turns.open


async def test_one_whose_turn_has_not_come_is_done_at_once_when_it_is_stopped() -> None:
    async with session(FakeEngine()) as it:
        it.begin("a")
        later = it.begin("b", "Two")
        it.turns.stop(later)
        assert await told(it, "b") == [("b", "done")]
        assert "b" in it.turns.over
        assert [it.turns.is_first_late_text("b") for _ in range(2)] == [True, False]


async def test_one_that_is_spoken_is_done_once_its_task_let_go() -> None:
    engine = FakeEngine()
    async with session(engine) as it:
        entry = it.begin("a", "a" * 100)
        responses = it.outbox.responses()
        while (await anext(responses)).WhichOneof("payload") != "audio":
            pass
        it.turns.stop(entry)
        assert entry.stopped, "though it is not done"
        assert (await told(it, "a"))[-1] == ("a", "done")
        assert engine.num_streams == 0


async def test_what_cannot_be_done_ends_one_utterance_alone() -> None:
    def refuse() -> None:
        raise InvalidField("text", "not good")

    async with session(FakeEngine()) as it:
        entry = it.begin("a")
        it.begin("b", "Two")
        it.turns.change(entry, refuse)
        it.turns.change(entry, refuse)  # nothing more happens to it
        assert (await told(it, "b"))[-1] == ("b", "done")


async def test_only_the_latest_ids_are_remembered() -> None:
    async with session(FakeEngine()) as it:
        it.begin("spoken")
        for number in range(MAX_REMEMBERED + 1):
            it.turns.stop(it.begin(f"u{number}"))
        assert "spoken" in it.turns.open
        assert "u0" not in it.turns.over
        assert f"u{MAX_REMEMBERED}" in it.turns.over


async def test_text_may_come_in_the_moment_in_which_the_last_one_is_looked_at() -> None:
    """uvloop's handle of what is due at once does not tell when that is."""
    async with session(FakeEngine()) as it:
        entry = it.begin("a")
        entry.utterance.segmenter.least_delay_s = 0.0
        await it.turns.push(entry, ["One "])
        await it.turns.push(entry, ["two "])
        assert entry.utterance.segmenter.num_chars == 8
