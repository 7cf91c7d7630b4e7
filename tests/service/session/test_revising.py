"""Text that changes while it is spoken: what is heard is the final text from the promised place on, nothing twice."""

import asyncio
import random
from collections.abc import AsyncIterator

import grpc
import pytest

from sonorant.service.session.config import MAX_LEAD_MS
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAMES_PER_CHAR, spoken
from tests.service.harness import (
    Served,
    end,
    eventually,
    flush,
    read_until,
    say,
    served,
)
from tests.service.scripts import SEED, unspoken
from tests.service.session._support import Talk, check_codes, revise, settings

COMPLETED = synthesis_pb2.FINISH_REASON_COMPLETED
FAILED = synthesis_pb2.FINISH_REASON_FAILED


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(max_streams=1)  # the place of the stream that is set back is all there is


@pytest.fixture
async def server(engine: FakeEngine) -> AsyncIterator[Served]:
    async with served(engine) as server:
        yield server


@pytest.mark.parametrize("whole_text_first", [False, True])
async def test_what_is_not_spoken_yet_is_replaced(server: Served, engine: FakeEngine, whole_text_first: bool) -> None:
    engine.hold()
    async with Talk(server, settings(non_streaming_mode=whole_text_first)) as talk:
        await talk.write(say("Hello world, "), say("said he."))
        answer = await talk.revise(6, "there.")
        engine.release()
        await talk.write(say(" Bye."), end())
        transcript = await talk.finish()
    text = "Hello there. Bye."
    assert (answer.from_char, answer.text_char) == (6, 0)
    assert talk.pcm == spoken(text, SEED)
    stats = transcript.done["u1"].stats
    assert (stats.input_chars, stats.spoken_chars, stats.dropped_frames) == (len(text), len(text), 0)
    assert "".join(mark.text for mark in transcript.marks["u1"]) == text.replace(" ", "")
    assert all(text[mark.text_start : mark.text_end] == mark.text for mark in transcript.marks["u1"])
    check_codes(transcript, text)


async def test_what_was_made_and_not_sent_is_taken_back(server: Served, engine: FakeEngine) -> None:
    old, new = "It will be five o'clock.", "It will be nine, or later."
    async with Talk(server, settings(lead_ms=160)) as talk:
        await talk.write(say(old))
        await talk.hear(2)
        await eventually(lambda: engine.frames_made >= 10, True)
        made = engine.frames_made
        answer = await talk.revise(11, new[11:])
        await talk.write(speak_pb2.SpeakRequest(playback={"played_ms": 10**6}), end())
        while "u1" not in talk.transcript.done:
            await talk.write(speak_pb2.SpeakRequest(playback={"played_ms": 10**6}))
            await read_until(talk.call, talk.transcript, "audio" if len(talk.pcm) < len(spoken(new)) else "done")
    assert (answer.from_char, answer.text_char) == (11, 0)
    assert talk.pcm == spoken(new, SEED)
    done = talk.transcript.done["u1"]
    assert done.stats.codec_frames == len(new) * FRAMES_PER_CHAR
    assert done.stats.dropped_frames == max(0, made - 11 * FRAMES_PER_CHAR)
    check_codes(talk.transcript, new)


async def test_words_that_were_heard_stay_and_as_many_of_the_revision_are_left_out(
    server: Served, engine: FakeEngine
) -> None:
    async with Talk(server, settings()) as talk:
        await talk.write(say("one two three"))
        await talk.hear(13 * FRAMES_PER_CHAR)
        answer = await talk.revise(4, "zwei drei vier")
        assert (answer.from_char, answer.text_char) == (13, 9)
        await talk.write(end())
        transcript = await talk.finish()
    assert talk.pcm == spoken("one two three vier", SEED)
    assert transcript.done["u1"].stats.spoken_chars == len("one two three vier")


async def test_flushes_behind_the_place_are_taken_back_and_those_before_it_are_not(
    server: Served, engine: FakeEngine
) -> None:
    engine.hold()
    async with Talk(server, settings()) as talk:
        await talk.write(say("One."), flush(1), say("Two."), flush(2), say("Three."), flush(3), say("Four."))
        answer = await talk.revise(6, "en.")
        assert list(answer.flush_ids) == [2, 3]
        answer = await talk.revise(4, "Five")  # a place where two segments meet is in the later one
        assert list(answer.flush_ids) == []
        engine.release()
        await talk.write(flush(4), end())
        transcript = await talk.finish()
    assert talk.pcm == spoken("One.", SEED) + spoken("Five", SEED)
    assert [each.flush_done.flush_id for each in transcript.responses if each.HasField("flush_done")] == [1, 4]


@pytest.mark.parametrize("mode", [speak_pb2.COMMIT_MODE_SENTENCE, speak_pb2.COMMIT_MODE_MANUAL])
async def test_in_other_modes_it_is_the_same_text(server: Served, engine: FakeEngine, mode: int) -> None:
    engine.hold()
    async with Talk(server, settings(mode)) as talk:
        await talk.write(say("It is one. It is two. It is three. And"))
        await talk.revise(17, "twelve. It ends.")
        engine.release()
        await talk.write(end())
        transcript = await talk.finish()
    text = "It is one. It is twelve. It ends."
    assert transcript.done["u1"].reason == COMPLETED
    assert unspoken(text, talk.pcm) == ""


async def test_phrases_are_respelled_in_the_revision_too(server: Served, engine: FakeEngine) -> None:
    engine.hold()
    async with Talk(server, settings(pronunciations={"SQL": "sequel"})) as talk:
        await talk.write(say("Say SQL now"))
        await talk.revise(8, "SQL")
        engine.release()
        await talk.write(end())
        transcript = await talk.finish()
    assert talk.pcm == spoken("Say sequel sequel", SEED)
    assert transcript.done["u1"].stats.input_chars == len("Say SQL SQL")


async def test_a_text_that_becomes_empty_is_not_spoken_and_one_that_comes_then_is(
    server: Served, engine: FakeEngine
) -> None:
    engine.hold()
    async with Talk(server, settings()) as talk:
        await talk.write(say("Never mind."))
        await talk.revise(0, "")
        engine.release()
        await talk.revise(0, "...")
        await talk.write(say("Yes."), end())
        await talk.finish()
    assert talk.pcm == spoken("...Yes.", SEED)


async def test_what_cannot_be_revised_is_said(server: Served, engine: FakeEngine) -> None:
    engine.hold()  # what was heard would stay, whatever is asked
    async with Talk(server, settings()) as talk:
        await talk.write(say("abc", "x"), end("x"), revise(0, "d", "x"), revise(0, "d", "y"))
        await talk.write(say("abc", "z"), revise(4, "d", "z"), say("abc", "v"), revise(1, "\0", "v"))
        for name in ("z", "v"):
            await read_until(talk.call, talk.transcript, "done", name)
        engine.release()
        transcript = await talk.finish()
    assert transcript.warnings == [("x", "NO_ACTIVE_UTTERANCE"), ("y", "NO_ACTIVE_UTTERANCE")]
    for name in ("z", "v"):
        assert transcript.done[name].reason == FAILED
        assert transcript.done[name].error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert transcript.pcm["x"] == spoken("abc", SEED)


PIECES = ("Hello ", "wor", "ld. ", "He said. ", "3.5 ", "…", " ", "It is so. And then ", "你好。", "no")


async def random_talk(server: Served, rng: random.Random) -> None:
    """Any edits at any time, in any mode; the loudspeaker is as fast as it is told to be."""
    lead_ms = rng.choice((0, 160, 800))
    config = settings(rng.choice((0, 2, 3)), lead_ms, non_streaming_mode=rng.random() < 0.15)
    text, asked = "", list[int]()
    played = speak_pb2.SpeakRequest(playback={"played_ms": MAX_LEAD_MS})
    async with Talk(server, config) as talk:
        await talk.write(say("So "))
        text = "So "
        for number in range(rng.randint(2, 14)):
            kind = rng.random()
            if kind < 0.35:
                piece = rng.choice(PIECES)
                await talk.write(say(piece))
                text += piece
            elif kind < 0.75:
                from_char = rng.randint(max(0, len(text) - 12), len(text))
                new = "".join(rng.choices(PIECES, k=rng.randint(0, 4)))
                answer = await talk.revise(from_char, new)
                assert answer.from_char >= from_char
                if not talk.pcm and not lead_ms and answer.from_char == from_char:
                    assert answer.text_char == 0
                text = text[: answer.from_char] + new[answer.text_char :]
                marks = talk.transcript.marks.get("u1", [])
                marks[:] = (mark for mark in marks if mark.text_end <= answer.from_char)
                asked = [each for each in asked if each not in answer.flush_ids]
            elif kind < 0.85:
                request = flush(number + 1)
                request.flush.carry_on = bool(number % 2)
                await talk.write(request)
                asked.append(number + 1)
            elif kind < 0.95 and config.text_policy.mode == 0 and not config.synthesis.non_streaming_mode:
                await talk.write(played)
                await talk.write(say("x"))
                text += "x"
                if not lead_ms:
                    await read_until(talk.call, talk.transcript, "audio")
        await talk.write(end())
        while "u1" not in talk.transcript.done:
            await talk.write(played)
            talk.transcript.add(await talk.call.read())
    done = talk.transcript.done["u1"]
    assert done.reason == COMPLETED, done
    left = unspoken(text, talk.pcm)
    assert left is not None and not any(map(str.isalnum, left)), (text, left)
    assert done.stats.input_chars == done.stats.spoken_chars == len(text)
    assert done.stats.sent_ms == len(talk.pcm) // 48
    answered = [each.flush_done.flush_id for each in talk.transcript.responses if each.HasField("flush_done")]
    assert answered == asked
    for mark in talk.transcript.marks.get("u1", ()):
        assert text[mark.text_start : mark.text_end] == mark.text


async def test_a_first_text_that_comes_by_a_revision_is_timed_from_then_on(server: Served) -> None:
    async with Talk(server, settings(mode=speak_pb2.COMMIT_MODE_MANUAL)) as talk:
        await talk.write(say(" "))
        await talk.revise(0, "Hello.")
        await asyncio.sleep(0.3)
        await talk.write(end())
        transcript = await talk.finish()
    assert transcript.done["u1"].stats.first_audio_ms >= 300


@pytest.mark.parametrize(("frame_s", "num_talks"), [(0.0, 30), (0.002, 20)])
async def test_any_edits_at_any_time(frame_s: float, num_talks: int) -> None:
    engine = FakeEngine(frame_s=frame_s)
    async with served(engine) as server:
        for seed in range(num_talks):
            await random_talk(server, random.Random(seed))
    assert engine.num_streams == 0
