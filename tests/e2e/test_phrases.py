"""A phrase that was spoken before comes from memory, byte by byte, and the metrics tell; through a real server."""

from collections.abc import Iterator

import grpc
import pytest

from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest
from tests.e2e.server_process import ServerProcess, scrape
from tests.service.harness import Stub

TEXT = "One moment please."
SAMPLING = {"do_sample": True, "seed": 3, "max_frames": 60}


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("phrases") / "log"
    with ServerProcess(log, "--phrase-cache-bytes", "2000000") as process:
        yield process


async def test_the_same_bytes_and_no_step_of_the_model(keeping: ServerProcess) -> None:
    config = synthesis_pb2.SynthesisConfig(sampling=SAMPLING, non_streaming_mode=False)
    async with grpc.aio.insecure_channel(keeping.address) as channel:
        stub = Stub(channel)
        heard = []
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
        assert (samples["tts_phrase_hits_total", ""], samples["tts_phrase_misses_total", ""]) == (2, 1)
        assert samples["tts_phrases", ""] == 1 and samples["tts_phrase_bytes", ""] > len(made)
        # The same phrase in a session, whose end comes with it.
        policy = {"mode": speak_pb2.COMMIT_MODE_MANUAL}
        first_message = speak_pb2.SpeakConfig(synthesis=config, text_policy=policy, max_lead_ms=0)
        requests = [speak_pb2.SpeakRequest(config=first_message), speak_pb2.SpeakRequest(text=TEXT)]
        said = [response async for response in stub.Speak(iter(requests))]
        assert b"".join(response.audio.data for response in said if response.HasField("audio")) == made
        assert scrape(keeping)["tts_phrase_hits_total", ""] == 3
