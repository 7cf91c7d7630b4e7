"""Recordings that wait to be encoded: one caller does not take the permits of all."""

import asyncio

import pytest

from sonorant.engine import EncodedReference
from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.ledger import Kind, Ledger
from sonorant.service.admission.permits import Permits
from sonorant.service.calls import context as call_context
from sonorant.service.calls.context import CallContext
from sonorant.service.errors import LimitReached
from sonorant.service.voices.choice import VoiceChooser
from sonorant.service.voices.presets import Presets
from sonorant.tts.v1 import voice_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.harness import eventually


class Waiting(FakeEngine):
    """Encodes nothing before it is told to."""

    def __init__(self) -> None:
        super().__init__(task="base")
        self.may_go_on = asyncio.Event()
        self.num_asked = 0

    async def encode_reference(self, audio: bytes, *, with_codes: bool) -> EncodedReference:
        self.num_asked += 1
        await self.may_go_on.wait()
        return await super().encode_reference(audio, with_codes=with_codes)


async def test_one_caller_cannot_fill_the_queue_and_who_leaves_makes_room() -> None:
    engine = Waiting()
    chooser = VoiceChooser(engine, Presets(engine.infos), None, Permits(Kind.RECORDINGS, 8, lambda: 2, Ledger()))

    async def clone(name: str, number: int) -> None:
        call_context.enter(CallContext(caller=Caller(name)))
        audio = b"%d " % number + b"sound" * 100
        await chooser.cloned(voice_pb2.ReferenceAudio(audio=audio), "config.voice.reference")

    ada = [asyncio.create_task(clone("ada", number)) for number in range(6)]
    await eventually(lambda: engine.num_asked, 6)
    with pytest.raises(LimitReached, match="6 of them by this API key"):
        await asyncio.create_task(clone("ada", 6))
    bob = [asyncio.create_task(clone("bob", number)) for number in (7, 8)]
    await eventually(lambda: engine.num_asked, 8)
    with pytest.raises(LimitReached, match="all 8 recordings are taken"):
        await asyncio.create_task(clone("bob", 9))
    bob.pop().cancel()
    await asyncio.sleep(0)
    bob.append(asyncio.create_task(clone("bob", 9)))
    await eventually(lambda: engine.num_asked, 9)
    engine.may_go_on.set()
    await asyncio.gather(*ada, *bob)


async def test_nobody_learns_that_another_s_recording_was_here() -> None:
    """A recording that came before is quick for the caller who sent it, and as slow as any for all others."""
    engine = FakeEngine(task="base")
    chooser = VoiceChooser(engine, Presets(engine.infos), None, Permits(Kind.RECORDINGS, 8, lambda: 2, Ledger()))

    async def clone(caller: Caller) -> None:
        call_context.enter(CallContext(caller=caller))
        await chooser.cloned(voice_pb2.ReferenceAudio(audio=b"sound" * 100), "config.voice.reference")

    for caller, num_encoded in (
        (Caller("ada"), 1),
        (Caller("ada"), 1),
        (Caller("bob"), 2),
        (Caller("", host="ipv4:10.0.0.3"), 3),
        (Caller("ada"), 3),
        (Caller("bob"), 3),
    ):
        await asyncio.create_task(clone(caller))
        assert engine.num_encoded == num_encoded
