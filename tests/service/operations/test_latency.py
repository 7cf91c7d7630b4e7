"""The way to the first audio, as `Speak` tells it."""

from sonorant.service.operations.latency import parts
from sonorant.tts.v1 import speak_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Transcript, config, end, eventually, flush, read_all, read_until, say, served, speak

UTTERANCES = ("v", "w", "x", "y", "z")


async def test_the_first_samples_of_each_utterance_tell_and_done_repeats_it() -> None:
    async with served(FakeEngine()) as server:
        call = server.stub.Speak()
        settings = config(audio={"encoding": "AUDIO_ENCODING_WAV", "sample_rate_hz": 8000}, speed=1.5)
        await call.write(speak_pb2.SpeakRequest(config=settings))
        for utterance_id in UTTERANCES:
            await call.write(say("abcd", utterance_id))
            await call.write(flush(1, utterance_id))
            await call.write(say("efgh", utterance_id))
            await call.write(end(utterance_id))
        await call.done_writing()
        responses = [response async for response in call]
    writing_ms = []
    for utterance_id in UTTERANCES:
        mine = [response for response in responses if response.utterance_id == utterance_id]
        header, first, *rest = [response.audio for response in mine if response.HasField("audio")]
        assert not header.num_samples and not header.HasField("budget")
        assert first.num_samples and not any(chunk.HasField("budget") for chunk in rest)
        stats = mine[-1].done.stats
        assert stats.first_audio_budget == first.budget
        assert all(ms >= 0 for _, ms in parts(first.budget))
        assert first.budget.encode_ms > 0 and not first.budget.opening_ms
        writing_ms.append(stats.first_audio_ms - sum(ms for _, ms in parts(first.budget)))
    # The quickest of them: any may have to wait for a core.
    assert -1 < min(writing_ms) < 20, "the parts are all of it, but for the writing"


async def test_waits_are_told_apart() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        paced = config()
        paced.max_lead_ms = 320
        await call.write(speak_pb2.SpeakRequest(config=paced))
        await call.write(say("aaaa", "x"))
        await call.write(end("x"))
        await read_until(call, transcript, "done", "x")
        engine.hold()
        await call.write(say("b", "y"))
        await call.write(end("y"))
        await eventually(lambda: engine.num_streams, 1)
        # All 640 ms of x are still to be heard, however long that took; a warning tells that the report was read.
        await call.write(speak_pb2.SpeakRequest(utterance_id="x", playback={"played_ms": 0}))
        await call.write(flush(1, "nobody"))
        await read_until(call, transcript, "warning", "nobody")
        engine.release()
        await call.done_writing()
        await read_all(call, transcript)
        budget = transcript.done["y"].stats.first_audio_budget
        assert budget.hold_ms > 50, "for the pace"
        assert budget.text_ms < 50


async def test_text_that_comes_with_the_call_tells_how_long_it_took_since_the_call_arrived() -> None:
    async with served(FakeEngine()) as server:
        opening = config()
        opening.opening.CopyFrom(speak_pb2.Opening(utterance_id="with it", text="ab", end=True))
        transcript = await speak(server.stub, [opening, say("cd", "later"), end("later")])
        budgets = {name: done.stats.first_audio_budget for name, done in transcript.done.items()}
        assert budgets["with it"].opening_ms > 0 and budgets["later"].opening_ms == 0
