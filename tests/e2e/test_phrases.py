"""A phrase that was spoken before comes from memory, byte by byte, and the metrics tell; through a real server.

So does a greeting that goes on with new text in the same voice state.
"""

from collections.abc import Iterator

import grpc
import numpy as np
import pytest

from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import DecodeRequest, SynthesizeStreamRequest
from tests.e2e.server_process import ServerProcess, scrape
from tests.service.harness import Stub, end, flush, say

TEXT = "One moment please."
SEEDED = {"do_sample": True, "seed": 3}
SAMPLING = {**SEEDED, "max_frames": 60}
GREETING, REST = "Thank you for waiting.", " Here it is, the number you wanted."  # which no other test speaks
CARRY_ON = speak_pb2.SpeakRequest(flush={"flush_id": 1, "carry_on": True})


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("phrases") / "log"
    with ServerProcess(log, "--phrase-cache-bytes", "2000000") as process:
        yield process


async def test_the_same_bytes_and_no_step_of_the_model(keeping: ServerProcess) -> None:
    config = synthesis_pb2.SynthesisConfig(sampling=SAMPLING, non_streaming_mode=False)
    async with grpc.aio.insecure_channel(keeping.address) as channel:
        stub = Stub(channel)
        heard, before = [], scrape(keeping)
        for _ in range(3):
            call = stub.SynthesizeStream(SynthesizeStreamRequest(text=TEXT, config=config))
            responses = [response async for response in call]
            audio = b"".join(response.audio.data for response in responses if response.HasField("audio"))
            stats = responses[-1].done.stats
            heard.append((audio, responses[0].started.from_phrase_cache, stats.kept_frames == stats.codec_frames))
            samples = scrape(keeping)
            if len(heard) == 2:  # the talker counts a step behind its audio; by now the first utterance's are counted
                rows_made = samples["tts_pass_rows_total", "talker"]
        (made, *first), *kept = heard
        assert first == [False, False] and kept == [(made, True, True)] * 2
        assert samples["tts_pass_rows_total", "talker"] == rows_made
        names = ("tts_phrase_hits_total", "tts_phrase_misses_total", "tts_phrases")
        assert [samples[name, ""] - before[name, ""] for name in names] == [2, 1, 1]
        assert samples["tts_phrase_bytes", ""] - before["tts_phrase_bytes", ""] > len(made)
        # The same phrase in a session, whose end comes with it.
        policy = {"mode": speak_pb2.COMMIT_MODE_MANUAL}
        first_message = speak_pb2.SpeakConfig(synthesis=config, text_policy=policy, max_lead_ms=0)
        requests = [speak_pb2.SpeakRequest(config=first_message), speak_pb2.SpeakRequest(text=TEXT)]
        said = [response async for response in stub.Speak(iter(requests))]
        assert b"".join(response.audio.data for response in said if response.HasField("audio")) == made
        assert scrape(keeping)["tts_phrase_hits_total", ""] == samples["tts_phrase_hits_total", ""] + 1


async def spoken(stub: Stub, *script: speak_pb2.SpeakRequest, encoding: int = 0) -> tuple[bytes, bytes, int]:
    """What was heard, all its codes, and how many frames came from memory."""
    synthesis = synthesis_pb2.SynthesisConfig(
        audio={"encoding": encoding}, sampling=SEEDED, non_streaming_mode=False, max_audio_ms=8000
    )
    config = speak_pb2.SpeakConfig(synthesis=synthesis, resumable=True, max_lead_ms=0)
    config.text_policy.mode = speak_pb2.COMMIT_MODE_MANUAL
    heard, codes, kept = b"", b"", 0
    async for response in stub.Speak(iter([speak_pb2.SpeakRequest(config=config), *script])):
        heard += response.audio.data
        codes += b"".join(told.codes for told in response.audio.codes)
        if response.HasField("done"):
            assert response.done.reason == synthesis_pb2.FINISH_REASON_COMPLETED
            kept = response.done.stats.kept_frames
    return heard, codes, kept


async def test_what_follows_is_the_same_whether_the_greeting_was_known(keeping: ServerProcess) -> None:
    async with grpc.aio.insecure_channel(keeping.address) as channel:
        stub = Stub(channel)
        num_before = scrape(keeping)["tts_phrases", ""]
        script = [say(GREETING), CARRY_ON, say(REST), end()]
        made, codes, num_kept = await spoken(stub, *script)
        assert num_kept == 0
        known, known_codes, num_kept = await spoken(stub, *script)
        stored, *_ = await spoken(stub, *script, encoding=audio_pb2.AUDIO_ENCODING_CODES)
        decoded = b"".join([each.audio.data async for each in stub.Decode(DecodeRequest(codes=stored))])
        silence = len(decoded) - len(made)  # at the beginning, which is stored and not sent
        assert_same(decoded[silence:], made)
        greeting = num_kept * 1920 * 2 - silence
        assert known_codes == codes and known[:greeting] == made[:greeting]
        assert_same(known, made)
        assert 0 < greeting < len(made) and scrape(keeping)["tts_phrases", ""] == num_before + 1
        anew, *_ = await spoken(stub, say(GREETING), flush(1), say(REST), end())
        assert anew[:greeting] == made[:greeting] and anew[greeting:] != made[greeting:], "another state"


async def test_a_short_text_is_spoken_even_where_the_model_takes_it_for_said(keeping: ServerProcess) -> None:
    """The included voice ends at once if three words follow a greeting."""
    async with grpc.aio.insecure_channel(keeping.address) as channel:
        stub = Stub(channel)
        greeting, *_ = await spoken(stub, say(TEXT), end())
        both, *_ = await spoken(stub, say(TEXT), CARRY_ON, say(" Here it is."), end())
        assert len(both) > len(greeting) + 24_000, "more than half a second"


def assert_same(one: bytes, other: bytes) -> None:
    """But for rounding, where frames were decoded in other chunks."""
    a, b = (np.frombuffer(pcm, "<i2").astype(int) for pcm in (one, other))
    assert len(a) == len(b) and np.abs(a - b).max() <= 2
