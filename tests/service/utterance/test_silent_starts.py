"""The silence with which a checkpoint begins to speak is not sent. Its codes are told, and times count without it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine import PcmChunk
from sonorant.service.audio.codes import parse
from sonorant.service.utterance.segment_frames import QUIET_PEAK, RISING_FRAMES, SegmentFrames
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2, text_to_speech_service_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAMES_PER_CHAR, NUM_CODEBOOKS, frame_codes, spoken
from tests.service.harness import codes_told, config, end, say, served, speak

SEED = {"seed": 7}
SILENT_MS, UNSENT_MS = 155, 120  # the frame that the sound begins in is sent from its middle on
BYTES_PER_MS = 48
WORDS = "Good morning"
NUM_FRAMES = len(WORDS) * FRAMES_PER_CHAR


def engine() -> FakeEngine:
    return FakeEngine(silent_ms=SILENT_MS)


def heard(text: str) -> bytes:
    silence = bytes((SILENT_MS - UNSENT_MS) * BYTES_PER_MS)
    return silence + spoken(text, 7)[SILENT_MS * BYTES_PER_MS :]


async def test_silence_is_not_sent_and_times_count_without_them() -> None:
    settings = config(sampling=SEED)
    settings.resumable, settings.timestamps = True, synthesis_pb2.TIMESTAMP_MODE_PROGRESS
    settings.text_policy.mode = speak_pb2.COMMIT_MODE_MANUAL  # or the last word might be told behind all of its audio
    async with served(engine()) as server:
        transcript = await speak(server.stub, [settings, say(WORDS), end()])
    assert transcript.pcm["u1"] == heard(WORDS)
    stats = transcript.done["u1"].stats
    assert stats.sent_ms == stats.audio_ms == NUM_FRAMES * 80 - UNSENT_MS
    assert stats.codec_frames == NUM_FRAMES
    marks = transcript.marks["u1"]
    assert 0 <= marks[0].start_ms <= SILENT_MS - UNSENT_MS and marks[-1].end_ms <= stats.sent_ms
    told = [codes for response in transcript.responses for codes in response.audio.codes]
    assert told[-1].unsent_samples == UNSENT_MS * BYTES_PER_MS // 2
    codes = np.frombuffer(codes_told(transcript.responses), "<u2").reshape(-1, NUM_CODEBOOKS)
    assert codes.tolist() == [frame_codes(WORDS, k) for k in range(NUM_FRAMES)], "all of them"


async def test_whole_clips_and_all_encodings_begin_with_the_first_sound() -> None:
    async with served(engine()) as server:

        async def clip(**audio: int) -> bytes:
            request: dict[str, Any] = {"text": WORDS, "config": {"sampling": SEED, "audio": audio}}
            response = await server.stub.Synthesize(text_to_speech_service_pb2.SynthesizeRequest(**request))
            return bytes(response.audio)

        assert await clip() == heard(WORDS)
        mulaw = await clip(encoding=audio_pb2.AUDIO_ENCODING_MULAW)
        assert len(mulaw) == len(heard(WORDS)) // 6
        stored = parse(await clip(encoding=audio_pb2.AUDIO_ENCODING_CODES))
        assert [len(part) for part in stored.segments] == [NUM_FRAMES], "codes are stored whole"


async def test_later_segments_begin_so_too_and_only_the_asked_pause_is_between() -> None:
    pause_ms = 240
    settings = config(sampling=SEED)
    settings.resumable = True
    pause = speak_pb2.SpeakRequest(flush={"flush_id": 1, "pause_ms": pause_ms})
    async with served(engine()) as server:
        transcript = await speak(server.stub, [settings, say("ab "), pause, say("cd"), end()])
    assert transcript.pcm["u1"] == heard("ab ") + bytes(pause_ms * BYTES_PER_MS) + heard("cd")
    told = [codes for response in transcript.responses for codes in response.audio.codes]
    unsent = UNSENT_MS * BYTES_PER_MS // 2
    assert {codes.segment: codes.unsent_samples for codes in told} == {0: unsent, 1: unsent}
    assert transcript.done["u1"].stats.sent_ms == len(transcript.pcm["u1"]) // BYTES_PER_MS


async def test_with_a_small_lead_the_engine_still_makes_what_is_heard() -> None:
    settings = config(sampling=SEED)
    settings.max_lead_ms = 160
    async with served(engine()) as server:
        transcript = await speak(server.stub, [settings, say("abcd"), end()])
        assert transcript.pcm["u1"] == heard("abcd")


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize(
    ("sounds", "unsent_ms"),
    [
        ([(3, 0, 9000)], 160),
        ([(1, 45, 9000)], 120),
        ([(0, 6, 9000)], 0),
        ([(0, 0, 640), (0, 19, QUIET_PEAK), (0, 31, -QUIET_PEAK - 1)], 30),
        ([(1, 10, -32_768)], 90),
        ([(1, 79, 9000)], 120),
        ([(0, 79, 9000)], 40),
        ([(2, 0, 9000)], 160),
    ],
)
def test_only_silence_is_left_out_however_it_comes(
    sounds: list[tuple[int, int, int]], unsent_ms: int, cut: int
) -> None:
    """`sounds`: frame, ms in it, sample. In the first 5 ms of all is the click of a decoder that begins cold."""
    frames = SegmentFrames(1920, 1, silent_first_frames=2)
    samples = np.zeros((4, 1920), np.int16)
    for number, at_ms, sample in sounds:
        samples[number, at_ms * 24] = sample
    heard = [
        frames.push(PcmChunk(start, len(part), part.reshape(-1), np.zeros((len(part), 1), np.int16)))
        for start, part in ((0, samples[:cut]), (cut, samples[cut:]))
    ]
    assert frames.unsent_samples == unsent_ms * 24
    expected = samples.reshape(-1)[unsent_ms * 24 :].tolist()
    assert np.concatenate(heard).tolist() == expected
    codes, given_samples = frames.give(4)
    assert len(codes) == 4 and given_samples.tolist() == expected


@given(st.lists(st.integers(1, 6), min_size=1, max_size=16), st.integers(0, 3))
def test_a_segment_that_begins_quieter_rises_however_its_frames_come(sizes: list[int], num_silent: int) -> None:
    whole, parts = (SegmentFrames(240, 1, 2, begins_quieter_db=6.0) for _ in range(2))
    samples = np.full((sum(sizes), 240), 10_000, np.int16)
    samples[:num_silent] = 0

    def pushed(frames: SegmentFrames, begin: int, end: int) -> list[int]:
        chunk = PcmChunk(begin, end - begin, samples[begin:end].reshape(-1), np.zeros((end - begin, 1), np.int16))
        return frames.push(chunk).tolist()

    heard, begin = list[int](), 0
    for size in sizes:
        heard += pushed(parts, begin, begin + size)
        begin += size
    assert heard == pushed(whole, 0, sum(sizes))
    loud = [sample for sample in heard if sample]
    assert loud == sorted(loud) and heard[RISING_FRAMES * 240 :] == [10_000] * len(heard[RISING_FRAMES * 240 :])
    assert num_silent or loud[0] in range(5000, 5030)


@given(st.lists(st.tuples(st.sampled_from(["push", "give", "take back"]), st.integers(0, 5)), max_size=12))
def test_frames_and_samples_stay_together(steps: list[tuple[str, int]]) -> None:
    """Whatever is pushed, given out and taken back: each frame is heard once, unless it is silence at the start."""
    frames = SegmentFrames(16, 1, silent_first_frames=2)
    heard: list[int] = []
    num_given = 0
    for step, count in steps:
        if step == "push" and count:
            numbers = np.arange(frames.num_frames, frames.num_frames + count)
            samples = np.repeat(np.where(numbers < 2, 0, 1000 + numbers), 16).astype(np.int16)
            frames.push(PcmChunk(int(numbers[0]), count, samples, numbers[:, None].astype(np.int16)))
        elif step == "give":
            codes, samples = frames.give(count)
            assert codes[:, 0].tolist() == list(range(num_given, num_given + len(codes)))
            num_given += len(codes)
            heard += samples.tolist()
        elif step == "take back":
            frames.take_back(count)
    assert heard == [1000 + k for k in range(2, num_given) for _ in range(16)]
