"""One utterance from text to audio, over the tests' engine and without gRPC."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sonorant.engine import EngineOverloaded, EngineUnavailable, FinishReason
from sonorant.service.access import api_keys
from sonorant.service.admission.ledger import Counted, Ledger
from sonorant.service.admission.reservations import Reservations
from sonorant.service.calls.loop_share import LoopShare
from sonorant.service.errors import InvalidField, LimitReached
from sonorant.service.pacing.pacer import Playout
from sonorant.service.text.segmenter import TextPolicy
from sonorant.service.utterance.allowance import Allowance
from sonorant.service.utterance.requests import UtteranceSpec
from sonorant.service.utterance.utterance import Beginning, Utterance
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually
from tests.service.utterance._support import NO_PHRASES, Caller, Heard, spec

CREDIT_OF_A_LONG_TEXT = "a" * 60  # more frames than the engine makes unasked


def reservations_of(engine: Any) -> Reservations:
    return Reservations(engine, Ledger())


def utterance(
    engine: Any, reservations: Reservations | None = None, caller: Caller | None = None, **config: Any
) -> Utterance:
    made = spec(engine, **config)
    return of(made, reservations or Reservations(engine, Ledger()), caller or Caller())


def of(made: UtteranceSpec, reservations: Reservations, caller: Caller) -> Utterance:
    allowance = Allowance(reservations, NO_PHRASES, LoopShare().of(""), 1000, caller.charge)
    return Utterance("u", made, allowance, Beginning(Playout()))


def write(to: Utterance, text: str) -> None:
    to.accept(text)
    to.push(text)


async def test_text_becomes_audio_and_is_accounted_for() -> None:
    engine = FakeEngine()
    one, heard = utterance(engine), Heard()
    write(one, "Hello")
    one.flush(1)
    write(one, " you")
    one.end()
    assert await one.speak(heard.send) is FinishReason.COMPLETED
    assert heard.kinds == ["UtteranceStarted", "AudioChunk", "FlushDone", "AudioChunk"]
    assert heard.pcm == spoken("Hello", 7) + spoken(" you", 7)
    done = one.done(FinishReason.COMPLETED)
    assert done.reason == synthesis_pb2.FINISH_REASON_COMPLETED
    assert (done.stats.input_chars, done.stats.spoken_chars) == (9, 9)
    assert done.stats.sent_ms == done.stats.audio_ms == len(heard.pcm) // 48
    assert engine.num_streams == 0


async def test_its_text_and_settings_tell_how_to_begin_it_again() -> None:
    engine = FakeEngine()
    one, heard = utterance(engine), Heard()
    write(one, "Hel")
    write(one, "lo")
    one.end()
    await one.speak(heard.send)
    text, counted = "".join(one.segments.written), one.statistics
    assert text == "Hello"
    assert (one.spec.params.sampling.seed, counted.num_frames) == (7, 10)
    assert counted.sent_samples == counted.received_samples == len(heard.pcm) // 2
    again, repeated = of(one.spec, reservations_of(engine), Caller()), Heard()
    write(again, text)
    again.end()
    await again.speak(repeated.send)
    assert repeated.pcm == heard.pcm


async def test_text_is_checked_then_charged_then_committed() -> None:
    engine, caller = FakeEngine(), Caller(limit=4)
    one = utterance(engine, caller=caller)
    with pytest.raises(InvalidField):
        one.accept("a\0")
    assert caller.charged == 0, "what is refused costs nothing"
    write(one, "abc")
    with pytest.raises(LimitReached):
        one.accept("de")
    assert caller.charged == 3
    assert "".join(one.segments.written) == "abc"
    one.abort()


async def test_what_pronunciations_make_longer_is_charged_before_it_is_spoken() -> None:
    """16 characters that are respelled once gave 82 s of speech."""
    engine, caller = FakeEngine(), Caller(limit=100)
    one, heard = utterance(engine, caller=caller, pronunciations={"x": "eks"}), Heard()
    write(one, "x x ")
    one.end()
    await one.speak(heard.send)
    assert heard.pcm == spoken("eks eks", 7) or heard.pcm == spoken("eks eks ", 7)
    assert caller.charged == len("eks eks ")

    dear = utterance(engine, caller=caller, pronunciations={"x": "x" * 60})
    dear.accept("x x ")
    with pytest.raises(LimitReached):
        dear.push("x x ")
    assert engine.num_streams == 0, "none of it was committed"


async def test_shorter_pronunciations_give_nothing_back() -> None:
    engine, caller = FakeEngine(), Caller()
    one = utterance(engine, caller=caller, pronunciations={"kilometres": "km"})
    write(one, "10 kilometres ")
    one.end()
    assert caller.charged == 14
    one.abort()


async def test_a_begun_utterance_keeps_its_place_against_newcomers() -> None:
    engine = FakeEngine(max_streams=1)
    reservations = reservations_of(engine)
    one, heard = utterance(engine, reservations), Heard()
    write(one, "First.")
    one.flush(1)
    speaking = asyncio.create_task(one.speak(heard.send))
    await eventually(lambda: "FlushDone" in heard.kinds, True)
    assert engine.num_streams == 0, "it rests between two streams"
    newcomer = utterance(engine, reservations)
    write(newcomer, "Me, too")
    newcomer.end()
    with pytest.raises(EngineOverloaded):
        await newcomer.speak(Heard().send)
    write(one, "Second.")
    one.end()
    assert await speaking is FinishReason.COMPLETED
    assert heard.pcm == spoken("First.", 7) + spoken("Second.", 7)
    late, later = utterance(engine, reservations), Heard()
    write(late, "Now")
    late.end()
    assert await late.speak(later.send) is FinishReason.COMPLETED, "its place is free"


async def test_who_has_many_utterances_leaves_places_to_others() -> None:
    engine = FakeEngine(max_streams=8)
    ledger = Ledger()
    everybody = Reservations(engine, ledger, lambda: 4)
    ada, bob, here = (everybody.of(api_keys.Caller(name)) for name in ("ada", "bob", ""))

    async def begun(reservations: Reservations) -> asyncio.Task[FinishReason]:
        one, heard = utterance(engine, reservations), Heard()
        write(one, "Hello")  # and more may come
        speaking = asyncio.create_task(one.speak(heard.send))
        await asyncio.wait([speaking, asyncio.create_task(until_heard(heard))], return_when=asyncio.FIRST_COMPLETED)
        return speaking

    hers = [await begun(ada) for _ in range(7)]
    with pytest.raises(EngineOverloaded):
        await (await begun(ada))
    theirs = [await begun(bob)]
    with pytest.raises(EngineOverloaded):
        await (await begun(here))
    assert len(set(engine.callers[:7])) == 1 and len(set(engine.callers)) == 2, "the engine shares out its slots"
    hers.pop().cancel()
    await eventually(lambda: engine.num_streams, 7)
    theirs.append(await begun(here))
    assert engine.callers[-1] == 0 and 0 not in engine.callers[:-1]
    for speaking in (*hers, *theirs):
        speaking.cancel()
    await asyncio.wait([*hers, *theirs])
    assert not ledger.holders(Counted.UTTERANCES, 1)


async def until_heard(heard: Heard) -> None:
    await eventually(lambda: bool(heard.pcm), True)


async def test_a_cancelled_utterance_keeps_no_place() -> None:
    engine = FakeEngine(max_streams=1)
    reservations = reservations_of(engine)
    one = utterance(engine, reservations)
    write(one, "First.")
    one.flush(1)
    heard = Heard()
    speaking = asyncio.create_task(one.speak(heard.send))
    await eventually(lambda: "FlushDone" in heard.kinds, True)
    speaking.cancel()
    await asyncio.wait([speaking])
    other = utterance(engine, reservations)
    write(other, "Now")
    other.end()
    assert await other.speak(Heard().send) is FinishReason.COMPLETED


async def test_one_that_is_prefilled_and_unheard_is_spoken_by_others_when_its_workers_die() -> None:
    engine = FakeEngine()
    one, heard = utterance(engine), Heard()
    write(one, "Hello")
    one.end()
    one.prefill()
    (stream,) = engine.live.values()
    assert stream.num_frames > 0
    stream.end(FinishReason.UNAVAILABLE, "a worker died")
    assert await one.speak(heard.send) is FinishReason.COMPLETED
    assert heard.pcm == spoken("Hello", 7)
    assert engine.num_opened == 2


async def test_one_that_dies_twice_unheard_ends() -> None:
    class Deadly(FakeEngine):
        def open(self, *args: Any, **kwargs: Any) -> Any:
            stream = super().open(*args, **kwargs)
            asyncio.get_running_loop().call_soon(stream.end, FinishReason.UNAVAILABLE, "a worker died")
            return stream

    engine = Deadly(frame_s=10.0)
    engine.hold()
    one, heard = utterance(engine), Heard()
    write(one, "Hello")
    one.end()
    with pytest.raises(EngineUnavailable, match="a worker died"):
        await one.speak(heard.send)
    assert engine.num_opened == 2
    assert heard.kinds == ["UtteranceStarted"]


async def test_one_that_was_heard_ends_with_its_workers() -> None:
    engine = FakeEngine()
    heard = Heard(on_audio=lambda: next(iter(engine.live.values())).end(FinishReason.UNAVAILABLE, "a worker died"))
    one = utterance(engine)
    write(one, CREDIT_OF_A_LONG_TEXT)
    with pytest.raises(EngineUnavailable, match="a worker died"):
        await one.speak(heard.send)
    assert engine.num_opened == 1


async def test_what_was_taken_back_was_not_sent() -> None:
    engine = FakeEngine()
    one = utterance(engine)
    write(one, "Hello")
    waiting = asyncio.Event()

    async def send(message: Any, on_taken: Callable[[], None] | None = None) -> None:
        if isinstance(message, audio_pb2.AudioChunk):
            waiting.set()
            await asyncio.Event().wait()

    speaking = asyncio.create_task(one.speak(send))
    await waiting.wait()
    speaking.cancel()
    await asyncio.wait([speaking])
    stats = one.done(FinishReason.CANCELLED).stats
    assert (stats.sent_ms, stats.spoken_chars) == (0, 0)
    assert stats.audio_ms > 0


async def test_credit_follows_what_is_sent() -> None:
    engine = FakeEngine()
    one, heard = utterance(engine), Heard()
    write(one, "a" * 200)
    one.end()
    assert await one.speak(heard.send) is FinishReason.COMPLETED
    assert heard.pcm == spoken("a" * 200, 7)


async def test_nothing_to_say_is_told() -> None:
    engine = FakeEngine()
    one, heard = utterance(engine), Heard()
    write(one, "?!")
    one.end()
    assert await one.speak(heard.send) is FinishReason.COMPLETED
    assert heard.kinds == ["UtteranceStarted", "Warning"]
    assert engine.num_opened == 0


async def test_max_frames_are_those_of_the_whole_utterance() -> None:
    engine = FakeEngine()
    limited = replace(spec(engine), policy=TextPolicy())
    sampling = replace(limited.params.sampling, max_frames=5)
    limited = replace(limited, params=replace(limited.params, sampling=sampling), max_frames_given=True)
    one, heard = of(limited, reservations_of(engine), Caller()), Heard()
    write(one, "ab")
    one.flush(1)
    write(one, "cd")
    assert await one.speak(heard.send) is FinishReason.MAX_FRAMES
    assert engine.opened[-1].sampling.max_frames == 1
    assert speak_pb2.FlushDone.__name__ in heard.kinds


async def test_text_that_was_taken_back_pays_for_what_comes_in_its_place() -> None:
    engine, caller = FakeEngine(), Caller()
    one = utterance(engine, caller=caller)
    write(one, "Hello world")
    assert one.revise(6, "there")[0].from_char == 6
    assert caller.charged == 11
    one.revise(0, "So " * 5)
    assert caller.charged == 15
    one.revise(0, "")
    write(one, "Again.")
    assert caller.charged == 21
    one.end()
    heard = Heard()
    await one.speak(heard.send)
    assert heard.pcm == spoken("Again.", 7)


async def test_pronunciations_are_charged_once_however_often_the_text_is_revised() -> None:
    caller = Caller()
    one = utterance(FakeEngine(), caller=caller, pronunciations={"SQL": "sequel"})
    write(one, "SQL it is ")
    for _ in range(3):
        one.revise(7, "is ")
    assert caller.charged == len("sequel it is ")
