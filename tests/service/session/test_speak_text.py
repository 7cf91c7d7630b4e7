"""`Speak`: when text is committed, and how much of it was heard."""

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest
import sentencex

from sonorant.service import composition
from sonorant.service.calls.loop_share import PER_TURN_S, LoopShare
from sonorant.service.text import segmenter
from sonorant.service.utterance.utterance import PREFILL_FRAMES
from sonorant.service.utterance.word_times import WordTimes
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import (
    Transcript,
    cancel,
    config,
    end,
    eventually,
    flush,
    read_all,
    read_until,
    say,
    served,
    speak,
)

SEED = {"seed": 7}
TOKEN = speak_pb2.COMMIT_MODE_TOKEN
SENTENCE = speak_pb2.COMMIT_MODE_SENTENCE
MANUAL = speak_pb2.COMMIT_MODE_MANUAL
PROGRESS = synthesis_pb2.TIMESTAMP_MODE_PROGRESS


def settings(lead_ms: int = 0, marks: bool = False, **policy: Any) -> speak_pb2.SpeakConfig:
    wanted = config(sampling=SEED)
    wanted.max_lead_ms = lead_ms
    wanted.text_policy.CopyFrom(speak_pb2.TextPolicy(**policy))
    if marks:
        wanted.timestamps = PROGRESS
    return wanted


async def test_a_sentence_is_spoken_to_its_end_once_it_is_certain() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=settings(mode=SENTENCE)))
        for piece in ("Dr. Lee ", "is in. ", "It "):
            await call.write(say(piece))
        await call.write(end("nobody"))  # the answer comes after all texts before it were handled
        await read_until(call, transcript, "warning")
        assert engine.num_streams == 0
        await call.write(say("is late"))
        while len(transcript.pcm.get("u1", b"")) < len(spoken("Dr. Lee is in. ")):
            await read_until(call, transcript, "audio")
        await eventually(lambda: engine.num_streams, 0)
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["u1"] == spoken("Dr. Lee is in. ", 7) + spoken("It is late", 7)
        assert ("u1", "flush_done") not in transcript.kinds


async def test_manual_speaks_at_flush_and_end_only() -> None:
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=settings(mode=MANUAL)))
        await call.write(say("ab. cd e f", "u1"))
        await read_until(call, transcript, "session")
        await call.write(say("g", "u2"))
        await call.write(cancel("u2"))
        await read_until(call, transcript, "done", "u2")
        assert ("u1", "started") not in transcript.kinds
        await call.write(flush(1, "u1"))
        await read_until(call, transcript, "flush_done")
        await call.write(say("gh", "u1"))
        await call.write(end("u1"))
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["u1"] == spoken("ab. cd e f", 7) + spoken("gh", 7)


async def test_a_pause_commits_what_was_held_back() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        for policy in (
            {"mode": SENTENCE, "max_buffer_delay_ms": 60},
            {"first_chunk_min_chars": 100, "max_buffer_delay_ms": 60},
        ):
            call, transcript = server.stub.Speak(), Transcript()
            await call.write(speak_pb2.SpeakRequest(config=settings(**policy)))
            await call.write(say("Half a sen"))
            await read_until(call, transcript, "audio")
            while len(transcript.pcm["u1"]) < len(spoken("Half a sen")):
                await read_until(call, transcript, "audio")
            assert transcript.pcm["u1"] == spoken("Half a sen", 7), "although neither end nor flush came"
            await call.done_writing()
            await read_all(call, transcript)


async def test_a_finished_sentence_is_spoken_to_its_end_without_more_text() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        for mode in (TOKEN, SENTENCE):
            call, transcript = server.stub.Speak(), Transcript()
            await call.write(speak_pb2.SpeakRequest(config=settings(mode=mode)))
            for piece in ("Let me look", " that up", " for you", ".", " "):
                await call.write(say(piece))
            said = "Let me look that up for you. "
            while len(transcript.pcm.get("u1", b"")) < len(spoken(said)):
                await read_until(call, transcript, "audio")
            await eventually(lambda: engine.num_streams, 0)
            await call.write(say("Here"))
            await call.write(say(" it is."))
            await call.done_writing()
            await read_all(call, transcript)
            assert transcript.pcm["u1"] == spoken(said, 7) + spoken("Here it is.", 7)
            assert ("u1", "flush_done") not in transcript.kinds


async def test_text_that_keeps_coming_is_one_segment() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=settings()))
        for _ in range(20):  # for longer than a sentence may wait
            await call.write(say("a. "))
            await asyncio.sleep(0.02)
        await eventually(lambda: [stream.text for stream in engine.live.values()], ["a. " * 20])
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["u1"] == spoken("a. " * 20, 7)


async def test_the_next_utterance_is_prefilled_while_this_one_is_heard() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=settings(lead_ms=400)))
        for name in ("x", "y"):
            await call.write(say(name * 10, name))
            await call.write(end(name))
        await eventually(lambda: [s.text for s in engine.live.values()], ["y" * 10])
        (stream,) = engine.live.values()
        await eventually(lambda: stream.num_frames, PREFILL_FRAMES)
        while len(transcript.pcm.get("x", b"")) < 48 * 1000:  # of 1.6 s
            await read_until(call, transcript, "audio")
        assert stream.num_frames == PREFILL_FRAMES, "its turn has not come"
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm == {"x": spoken("x" * 10, 7), "y": spoken("y" * 10, 7)}
        assert [i for i, kind in transcript.kinds if kind == "done"] == ["x", "y"]


async def test_what_comes_after_a_flush_is_prefilled_too_and_a_cancel_frees_it() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=settings(lead_ms=400)))
        await call.write(say("x" * 10, "x"))
        await call.write(flush(1, "x"))
        await call.write(say("X" * 10, "x"))
        await eventually(lambda: [s.text for s in engine.live.values()], ["X" * 10])
        await call.write(cancel("x", played_ms=0))
        await read_until(call, transcript, "done")
        assert engine.num_streams == 0
        assert transcript.done["x"].stats.spoken_chars == 0
        call.cancel()


async def test_a_cancelled_prefill_leaves_nothing() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=settings(lead_ms=400)))
        for name in ("x", "y"):
            await call.write(say(name * 10, name))
            await call.write(end(name))
        await eventually(lambda: [s.text for s in engine.live.values()], ["y" * 10])
        await call.write(cancel("y"))
        await read_until(call, transcript, "done", "y")
        assert engine.num_streams == 0
        assert transcript.done["y"].stats.spoken_chars == transcript.done["y"].stats.sent_ms == 0
        await call.write(say("z" * 10, "z"))
        await eventually(lambda: [s.text for s in engine.live.values()], ["z" * 10])
        call.cancel()
        await eventually(lambda: engine.num_streams, 0)


async def test_marks_come_before_their_audio_and_say_what_was_heard() -> None:
    text = "One two, three four five. And so it ends, my friend!"
    async with served(FakeEngine()) as server:
        transcript = await speak(server.stub, [settings(mode=MANUAL, marks=True), say(text)])  # its end comes with it
        marks = transcript.marks["u1"]
        assert [mark.text for mark in marks] == text.split()
        assert all(text[mark.text_start : mark.text_end] == mark.text for mark in marks)
        assert marks[-1].end_ms <= transcript.done["u1"].stats.sent_ms


async def test_a_word_that_ends_with_the_text_is_told_although_all_its_audio_went_out() -> None:
    text = "One two"
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=settings(marks=True)))
        await call.write(say(text))
        while len(transcript.pcm.get("u1", b"")) < len(spoken(text)):
            await read_until(call, transcript, "audio")
        assert [mark.text for mark in transcript.marks["u1"]] == ["One"], "more letters of the other may come"
        await call.write(end())
        await read_until(call, transcript, "done")
        assert [kind for _, kind in transcript.kinds[-2:]] == ["marks", "done"]
        told, last = transcript.marks["u1"]
        assert (last.text, last.text_start, last.text_end) == ("two", 4, 7)
        assert told.end_ms <= last.start_ms <= last.end_ms
        call.cancel()


async def test_a_cancel_tells_how_far_the_text_was_heard() -> None:
    text = "One two, three four five. And so it ends, my friend!"
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=settings(lead_ms=4000, marks=True)))
        await call.write(say(text))
        while len(transcript.pcm.get("u1", b"")) < 48 * 3000:
            await read_until(call, transcript, "audio")
        await call.write(cancel(played_ms=2000))
        await read_until(call, transcript, "done")
        stats = transcript.done["u1"].stats
        heard = [mark for mark in transcript.marks["u1"] if mark.end_ms <= 2000]
        assert stats.spoken_chars == heard[-1].text_end
        assert 0 < stats.spoken_chars < len(text)
        call.cancel()


async def test_without_a_report_the_clock_of_the_playback_counts() -> None:
    """What was sent at once can have been heard only as far as time has passed."""
    text = "One two, three four five. And so it ends, my friend!"
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=settings(lead_ms=4000, marks=True)))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await call.write(say(text))
        while len(transcript.pcm.get("u1", b"")) < 48 * 3000:
            await read_until(call, transcript, "audio")
        await asyncio.sleep(0.7)
        await call.write(cancel("*"))
        await read_until(call, transcript, "done")
        most_ms = (loop.time() - began_s) * 1000
        ends = [(mark.end_ms, mark.text_end) for mark in transcript.marks["u1"]]
        least, most = (max(chars for end_ms, chars in ends if end_ms <= heard_ms) for heard_ms in (700, most_ms))
        assert 0 < least <= transcript.done["u1"].stats.spoken_chars <= most
        call.cancel()


@pytest.mark.parametrize("mode", [TOKEN, SENTENCE, MANUAL])
async def test_long_messages_of_many_are_worked_on_a_little_at_a_time(
    mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have their turn in between: 4,096 characters of short sentences once took 48 s, and thirty times as many
    that came at once 0.2 s of each turn of the event loop."""
    turn, taken = 0, Counter[int]()  # characters, by the turn of the event loop
    split, push_words = sentencex.segment, WordTimes.push_text

    def segment(code: str, text: str) -> list[str]:
        taken[turn] += len(text)
        return split(code, text)

    def push_text(times: WordTimes, text: str, speed: float) -> None:
        taken[turn] += 80 * len(text)
        push_words(times, text, speed)

    def count() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count)

    def clock() -> float:
        """By it 256 characters take all that a turn has for them."""
        return taken.total() / (80 * 256) * PER_TURN_S

    monkeypatch.setattr("sonorant.service.text.sentences.sentencex.segment", segment)
    monkeypatch.setattr(WordTimes, "push_text", push_text)
    monkeypatch.setattr(composition, "LoopShare", partial(LoopShare, clock))
    text = "你好。" * 341
    async with served(FakeEngine()) as here:
        calls = [here.stub.Speak() for _ in range(8)]
        count()
        for call in calls:
            await call.write(speak_pb2.SpeakRequest(config=settings(mode=mode)))
            await call.write(say(text))
            await call.write(end())
        await asyncio.gather(*(read_until(call, Transcript(), "audio") for call in calls))
        await eventually(lambda: taken.total() > 8 * 79 * len(text), True)
        for call in calls:
            call.cancel()
    # What is committed by hand is committed at once.
    assert max(taken.values()) < (80 * len(text) if mode == MANUAL else 160 * 256) + 80 * 256


async def test_text_is_taken_while_nothing_is_read() -> None:
    async with served(FakeEngine()) as server:

        async def feed() -> Transcript:
            call = server.stub.Speak()
            await call.write(speak_pb2.SpeakRequest(config=settings()))
            for number in range(100):
                await call.write(say("ab"[number % 2]))
            await call.done_writing()
            return await read_all(call)

        for transcript in await asyncio.gather(*(feed() for _ in range(8))):
            assert transcript.pcm["u1"] == spoken("ab" * 50, 7)


async def test_the_end_of_a_sentence_waits_no_longer_than_that_though_the_words_before_might(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segmenter, "WORDS_DELAY_S", 3600.0)
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config(sampling=SEED, non_streaming_mode=True)))
        await call.write(say("Nobody "))
        await asyncio.sleep(2 * segmenter.COMPLETE_DELAY_S)  # meanwhile the server looks at it
        await call.write(say("knew. "))
        while transcript.pcm.get("u1", b"") != spoken("Nobody knew. ", 7):
            await read_until(call, transcript, "audio")
        call.cancel()
