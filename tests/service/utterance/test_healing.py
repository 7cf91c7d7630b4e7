"""An utterance that no longer speaks is set back and goes on with other draws, before anybody hears it."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from sonorant.service.utterance.segments import SEED_STEP
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2, text_to_speech_service_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAME_SAMPLES, FRAMES_PER_CHAR, frame_samples, spoken
from tests.service.harness import Served, Transcript, codes_told, config, end, flush, say, served, speak

TEXT = "The quick brown fox jumps over the lazy dog."
SEED = 7
SECOND, THIRD = ((SEED + draw * SEED_STEP) % 2**32 for draw in (1, 2))
COMPLETED = synthesis_pb2.FINISH_REASON_COMPLETED
RUNAWAY = synthesis_pb2.FINISH_REASON_RUNAWAY


def parts(*seeds_until: tuple[int, int | None], text: str = TEXT) -> bytes:
    """The audio of a text whose frames up to a number each are made with a seed each; None: the last."""
    frames: list[Any] = []
    for seed, until in seeds_until:
        stop = len(text) * FRAMES_PER_CHAR if until is None else until
        frames += [frame_samples(text[k // FRAMES_PER_CHAR], k, seed) for k in range(len(frames), stop)]
    return np.concatenate(frames).astype("<i2").tobytes()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(max_streams=1)  # the place of the stream that is lost is all there is


@pytest.fixture
async def server(engine: FakeEngine) -> AsyncIterator[Served]:
    async with served(engine) as server:
        yield server


async def spoken_by(server: Served, **settings: Any) -> Transcript:
    session = speak_pb2.SpeakConfig(**settings)
    session.synthesis.sampling.seed = SEED
    return await speak(server.stub, [session, say(TEXT), end()])


@pytest.mark.slow
@pytest.mark.parametrize("lead_ms", [0, 400])
async def test_a_silence_is_not_heard_and_speech_goes_on_with_other_draws(
    server: Served, engine: FakeEngine, lead_ms: int
) -> None:
    engine.silent_from = {SEED: 21}
    transcript = await spoken_by(server, max_lead_ms=lead_ms)
    done = transcript.done["u1"]
    assert done.reason == COMPLETED
    assert transcript.pcm["u1"] == parts((SEED, 21), (SECOND, None))
    assert done.stats.heals == 1
    assert done.stats.dropped_frames >= 25
    assert done.stats.codec_frames == len(TEXT) * FRAMES_PER_CHAR
    assert done.stats.audio_ms == done.stats.sent_ms == len(transcript.pcm["u1"]) // 48
    assert done.stats.spoken_chars == len(TEXT)
    assert not transcript.warnings


async def test_other_draws_are_tried_twice_and_a_runaway_is_one_only_then(server: Served, engine: FakeEngine) -> None:
    engine.silent_from = {SEED: 10, SECOND: 30, THIRD: 50}
    limit = 130
    request = text_to_speech_service_pb2.SynthesizeRequest(text=TEXT)
    request.config.sampling.seed, request.config.sampling.max_frames = SEED, limit
    clip = await server.stub.Synthesize(request)
    assert clip.reason == synthesis_pb2.FINISH_REASON_MAX_AUDIO
    assert clip.stats.heals == 2
    heard = parts((SEED, 10), (SECOND, 30), (THIRD, 50))
    assert clip.audio[: len(heard)] == heard
    assert not any(clip.audio[len(heard) :])
    assert clip.stats.codec_frames == limit


async def test_a_pause_of_less_than_that_is_heard_as_it_was_made(server: Served, engine: FakeEngine) -> None:
    engine.silent_from = {SEED: 21}
    request = text_to_speech_service_pb2.SynthesizeRequest(text=TEXT)
    request.config.sampling.seed, request.config.sampling.max_frames = SEED, 21 + 24
    clip = await server.stub.Synthesize(request)
    assert clip.stats.heals == 0
    assert clip.audio == parts((SEED, 21)) + bytes(24 * FRAME_SAMPLES * 2)


async def test_the_next_segment_is_spoken_as_if_nothing_had_been(server: Served, engine: FakeEngine) -> None:
    engine.silent_from = {SEED: 21}
    session = config(sampling={"seed": SEED})
    transcript = await speak(server.stub, [session, say(TEXT), flush(1), say("And on."), end()])
    assert transcript.pcm["u1"] == parts((SEED, 21), (SECOND, None)) + spoken("And on.", SEED)
    assert [kind for _, kind in transcript.kinds][1:] == ["started", "audio", "flush_done", "audio", "done"]


async def test_codes_are_told_of_what_is_heard_and_say_which_draw_it_was(server: Served, engine: FakeEngine) -> None:
    engine.silent_from = {SEED: 21}
    transcript = await spoken_by(server, max_lead_ms=0, resumable=True)
    told = [codes for each in transcript.responses if each.HasField("audio") for codes in each.audio.codes]
    kept = codes_told(transcript.responses)
    assert len(kept) == len(TEXT) * FRAMES_PER_CHAR * engine.info.num_codebooks * 2
    assert [codes.draw for codes in told] == sorted(codes.draw for codes in told)
    assert (told[-1].draw, told[-1].complete) == (1, True)
    # It goes on elsewhere with the same draws.
    started = next(each.started for each in transcript.responses if each.HasField("started"))
    num_heard = 30
    known = kept[: num_heard * engine.info.num_codebooks * 2]
    resume = speak_pb2.Resume(
        replay=started.replay,
        checkpoint=started.checkpoint,
        received_samples=num_heard * FRAME_SAMPLES,
        received_chunks=1,
        segments=[audio_pb2.SegmentCodes(codes=known, draw=1)],
    )
    request = speak_pb2.SpeakRequest(utterance_id="again", resume=resume)
    call = server.stub.Speak()
    for each in (speak_pb2.SpeakRequest(config=config()), request, say(TEXT, "again"), end("again")):
        await call.write(each)
    await call.done_writing()
    audio = b""
    async for response in call:
        audio += response.audio.data
    assert audio == transcript.pcm["u1"][num_heard * FRAME_SAMPLES * 2 :]


@pytest.mark.parametrize("lead_ms", [0, 2000])
async def test_babble_is_set_back_as_far_as_nobody_heard_it(server: Served, engine: FakeEngine, lead_ms: int) -> None:
    """It stands still in its text for 75 frames, and its audio is more than twice as long as the text's usual one."""
    engine.stands_from = {SEED: 9}
    transcript = await spoken_by(server, max_lead_ms=lead_ms)
    done = transcript.done["u1"]
    assert (done.reason, done.stats.heals, transcript.warnings) == (COMPLETED, 1, [])
    assert done.stats.dropped_frames >= 8
    assert any(transcript.pcm["u1"] == parts((SEED, kept), (SECOND, None)) for kept in range(9, 9 + 75))


async def test_babble_in_a_whole_clip_is_not_in_it(server: Served, engine: FakeEngine) -> None:
    engine.stands_from = {SEED: 9}
    request = text_to_speech_service_pb2.SynthesizeRequest(text=TEXT)
    request.config.sampling.seed = SEED
    clip = await server.stub.Synthesize(request)
    assert clip.audio == parts((SEED, 9), (SECOND, None))
    assert (clip.stats.heals, len(clip.warnings)) == (1, 0)


async def test_babble_that_was_heard_is_told_once_and_before_its_end(server: Served, engine: FakeEngine) -> None:
    """By the time that the speech is too long for its text, it has stood still for long."""
    engine.stands_from = dict.fromkeys((SEED, SECOND, THIRD), 9)
    session = speak_pb2.SpeakConfig(max_lead_ms=0)
    session.synthesis.sampling.seed = SEED
    transcript = await speak(server.stub, [session, say(TEXT * 3), end()])
    assert transcript.warnings == [("u1", "BABBLE")]
    kinds = [kind for _, kind in transcript.kinds]
    assert kinds.index("warning") < kinds.index("done")
    assert transcript.done["u1"].reason == COMPLETED


@pytest.mark.parametrize("stands_from", [14, 20])
async def test_a_standstill_of_less_than_that_is_none(server: Served, engine: FakeEngine, stands_from: int) -> None:
    engine.stands_from = {SEED: stands_from}
    assert not (await spoken_by(server, max_lead_ms=0)).warnings


async def test_who_wants_frames_without_an_end_gets_them(server: Served, engine: FakeEngine) -> None:
    engine.silent_from = {SEED: 2}
    transcript = await speak(
        server.stub, [config(sampling={"seed": SEED, "ignore_eos": True, "max_frames": 90}), say(TEXT), end()]
    )
    assert transcript.done["u1"].stats.heals == 0
    assert transcript.pcm["u1"] == parts((SEED, 2)) + bytes(88 * FRAME_SAMPLES * 2)
