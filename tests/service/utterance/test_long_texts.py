"""A text longer than the checkpoint speaks well in one go is spoken in segments, of which callers see nothing."""

from typing import Any

import grpc
import pytest

from sonorant.client.speaking.journal import Journal
from sonorant.service.text.segmenter import PARAGRAPH_PAUSE_MS
from sonorant.tts.v1 import explain_pb2, speak_pb2, synthesis_pb2, text_to_speech_service_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAME_SAMPLES, FRAMES_PER_CHAR, spoken
from tests.service.harness import Transcript, end, flush, read_all, read_until, say, served, speak

SEGMENTS = (
    "The house is by the river. Nobody knew it. ",
    "He paid $25.99 to Dr. Lee for it. ",
    "She said: “Really?” It was late. ",
    "And so on, and on.",
)
TEXT = "".join(SEGMENTS)
AUDIO = b"".join(spoken(segment, 7) for segment in SEGMENTS)
SYNTHESIS = {"sampling": {"seed": 7}}
MODES = [speak_pb2.COMMIT_MODE_TOKEN, speak_pb2.COMMIT_MODE_MANUAL]


def engine(*, whole_after_cut: bool = False) -> FakeEngine:
    return FakeEngine(max_segment_chars=60, whole_after_cut=whole_after_cut)


def settings(**options: Any) -> speak_pb2.SpeakConfig:
    return speak_pb2.SpeakConfig(synthesis=SYNTHESIS, max_lead_ms=0, **options)


async def test_whole_texts() -> None:
    async with served(engine()) as server:
        request = {"text": TEXT, "config": SYNTHESIS, "timestamps": synthesis_pb2.TIMESTAMP_MODE_PROGRESS}
        clip = await server.stub.Synthesize(text_to_speech_service_pb2.SynthesizeRequest(**request))
        assert clip.audio == AUDIO and clip.reason == synthesis_pb2.FINISH_REASON_COMPLETED
        assert [TEXT[mark.text_start : mark.text_end] for mark in clip.marks] == TEXT.split()
        assert clip.stats.spoken_chars == clip.stats.input_chars == len(TEXT)
        audio = b""
        async for each in server.stub.SynthesizeStream(text_to_speech_service_pb2.SynthesizeStreamRequest(**request)):
            audio += each.audio.data
        assert audio == AUDIO


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_texts_that_come_in_pieces(mode: int, size: int) -> None:
    async with served(engine()) as server:
        pieces = [say(TEXT[start : start + size]) for start in range(0, len(TEXT), size)]
        config = settings(text_policy={"mode": mode}, timestamps=synthesis_pb2.TIMESTAMP_MODE_PROGRESS)
        transcript = await speak(server.stub, [config, *pieces, end()])
        assert transcript.pcm["u1"] == AUDIO
        assert [TEXT[mark.text_start : mark.text_end] for mark in transcript.marks["u1"]] == TEXT.split()
        assert transcript.done["u1"].stats.spoken_chars == len(TEXT)
        assert ("u1", "flush_done") not in transcript.kinds


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("gap", ["\n\n", "\r\n\r\n", "\n \n\n", "\u2029"])
async def test_paragraphs_are_followed_by_a_pause(size: int, gap: str) -> None:
    title, rest = "A title that takes as many characters as half a segment" + gap, "It was late."
    pause = bytes(2 * 24 * PARAGRAPH_PAUSE_MS)
    async with served(engine()) as server:
        pieces = [say((title + rest)[start : start + size]) for start in range(0, len(title + rest), size)]
        transcript = await speak(server.stub, [settings(), *pieces, end()])
        assert transcript.pcm["u1"] == spoken(title, 7) + pause + spoken(rest, 7)
        sentences = [say(f"One is here.{gap}Two are there. And three of them.")]
        config = settings(text_policy={"mode": speak_pb2.COMMIT_MODE_SENTENCE})
        transcript = await speak(server.stub, [config, *sentences, end()])
        assert transcript.pcm["u1"].count(pause) == 1
        assert transcript.pcm["u1"].startswith(spoken(f"One is here.{gap}", 7) + pause)


async def test_limits_of_the_audio_count_over_the_whole_text() -> None:
    async with served(engine()) as server:
        num_frames = (len(SEGMENTS[0]) + 10) * FRAMES_PER_CHAR
        config = speak_pb2.SpeakConfig(synthesis={"sampling": {"seed": 7, "max_frames": num_frames}}, max_lead_ms=0)
        call, transcript = server.stub.Speak(), Transcript()
        for request in (speak_pb2.SpeakRequest(config=config), say(TEXT), end()):
            await call.write(request)
        await call.done_writing()
        await read_all(call, transcript)
        assert dict(await call.trailing_metadata())["x-finish-reason"] == "MAX_AUDIO"
        done = transcript.done["u1"]
        assert done.reason == synthesis_pb2.FINISH_REASON_MAX_AUDIO and done.stats.codec_frames == num_frames
        assert transcript.pcm["u1"] == AUDIO[: num_frames * FRAME_SAMPLES * 2]
        assert len(SEGMENTS[0]) <= done.stats.spoken_chars < len(TEXT)


async def test_capabilities_tell_the_length_and_explain_the_segments() -> None:
    async with served(engine()) as server:
        told = await server.stub.GetCapabilities(text_to_speech_service_pb2.GetCapabilitiesRequest())
        assert told.max_segment_chars == 60 and told.max_text_chars == 100_000
        explained = await server.stub.Explain(explain_pb2.ExplainRequest(text=TEXT, config=SYNTHESIS))
        assert [TEXT[each.text_start : each.text_end] for each in explained.segments] == [*SEGMENTS]
        assert sum(each.num_tokens for each in explained.segments) == len(explained.tokens)
        assert sum(each.estimated_frames for each in explained.segments) == explained.estimated_frames
        assert not explained.errors


@pytest.mark.parametrize("at", [10, len(SEGMENTS[0]), len(SEGMENTS[0]) + 3, len(TEXT) - 1])
async def test_an_utterance_is_resumed_in_any_of_its_segments(at: int) -> None:
    async with served(engine()) as server:
        config = settings(resumable=True)
        journal = Journal(None)
        call, pcm = server.stub.Speak(), b""
        for request in (speak_pb2.SpeakRequest(config=config), journal.text("", TEXT), journal.end("")):
            await call.write(request)
        while len(pcm) < at * FRAMES_PER_CHAR * FRAME_SAMPLES * 2:
            response = await call.read()
            if not response.HasField("session") and journal.take(response):
                pcm += response.audio.data
        call.cancel()
        call = server.stub.Speak()
        for request in (speak_pb2.SpeakRequest(config=config), *journal.requests_to_resend()):
            await call.write(request)
        await call.done_writing()
        while (response := await call.read()) is not grpc.aio.EOF:
            if not response.HasField("session") and journal.take(response):
                pcm += response.audio.data
        assert pcm == AUDIO


@pytest.mark.parametrize("from_char", [5, len(SEGMENTS[0]) - 3, len(SEGMENTS[0]), len(TEXT) - 4])
async def test_a_revision_may_reach_over_segments(from_char: int) -> None:
    """Nothing was heard yet, as the text waits for its end."""
    async with served(engine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        config = settings(text_policy={"mode": speak_pb2.COMMIT_MODE_MANUAL})
        new = "in the old town. It has a garden with trees. The end. And a bit more of it."
        await call.write(speak_pb2.SpeakRequest(config=config))
        await call.write(say(TEXT))
        await call.write(speak_pb2.SpeakRequest(revise={"from_char": from_char, "text": new}))
        await call.write(end())
        await call.done_writing()
        await read_all(call, transcript)
        revised = TEXT[:from_char] + new
        assert transcript.done["u1"].stats.input_chars == len(revised)
        whole = await speak(server.stub, [settings(), say(revised), end()])
        assert transcript.pcm["u1"] == whole.pcm["u1"]


async def test_the_next_segment_is_there_when_the_one_before_is_over() -> None:
    """A long text speaks with a small part of itself in the engine."""
    fake = engine()
    async with served(fake) as server:
        transcript = await speak(server.stub, [settings(), say(TEXT * 8), end()])
        assert len(transcript.pcm["u1"]) == len(AUDIO) * 8
        assert len(fake.opened) >= 24


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_text_that_goes_on_behind_a_cut_is_in_its_prompt(size: int) -> None:
    """What follows a flush begins with its first word, as the listener may have nothing else to hear."""
    fake = engine(whole_after_cut=True)
    async with served(fake) as server:
        pieces = [say(TEXT[start : start + size]) for start in range(0, len(TEXT), size)]
        await speak(server.stub, [settings(), *pieces, flush(1), *pieces, end()])
        assert [params.non_streaming_mode for params in fake.opened] == 2 * [False, True, True, True]


async def test_a_checkpoint_that_does_not_ask_for_it_never_waits_for_the_text_behind_a_cut() -> None:
    fake = engine()
    async with served(fake) as server:
        await speak(server.stub, [settings(), *map(say, TEXT.split(" ")), end()])
        assert not any(params.non_streaming_mode for params in fake.opened)


async def test_it_waits_no_longer_than_a_text_that_has_paused() -> None:
    fake = engine(whole_after_cut=True)
    async with served(fake) as server:
        call, transcript = server.stub.Speak(), Transcript()
        config = settings(text_policy={"max_buffer_delay_ms": 10})
        for request in (speak_pb2.SpeakRequest(config=config), say(SEGMENTS[0] + SEGMENTS[1][:9])):
            await call.write(request)
        while transcript.pcm.get("u1", b"") != spoken(SEGMENTS[0], 7) + spoken(SEGMENTS[1][:9], 7):
            await read_until(call, transcript, "audio")
        await call.write(say(SEGMENTS[1][9:]))
        await call.done_writing()
        await read_all(call, transcript)
        assert [params.non_streaming_mode for params in fake.opened] == [False, True, False]


async def test_what_was_heard_of_a_later_segment_stays_when_it_is_revised() -> None:
    text, new = SEGMENTS[0] + SEGMENTS[1], "in cash, as he had said."
    num_heard = (len(SEGMENTS[0]) + 3) * FRAMES_PER_CHAR
    async with served(engine(whole_after_cut=True)) as server:
        call, transcript = server.stub.Speak(), Transcript()
        config = speak_pb2.SpeakConfig(synthesis=SYNTHESIS, max_lead_ms=80 * num_heard)
        for request in (speak_pb2.SpeakRequest(config=config), say(text), flush(1)):
            await call.write(request)
        while len(transcript.pcm.get("u1", b"")) < 2 * FRAME_SAMPLES * num_heard:
            await read_until(call, transcript, "audio")
        revise = {"from_char": text.index("for it"), "text": new}
        await call.write(speak_pb2.SpeakRequest(revise=revise))
        await read_until(call, transcript, "revised")
        revised = transcript.responses[-1].revised
        for request in (speak_pb2.SpeakRequest(playback={"played_ms": 10**6}), end()):
            await call.write(request)
        await call.done_writing()
        await read_all(call, transcript)
        rest = text[len(SEGMENTS[0]) : revised.from_char] + new[revised.text_char :]
        assert transcript.pcm["u1"] == spoken(SEGMENTS[0], 7) + spoken(rest, 7)
