"""The receipt of an utterance brings the same audio again."""

from typing import Any

from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service.harness import assert_same_audio, say, speak

TEXT = "SQL is fine today."
PHONE = {
    "audio": {"sample_rate_hz": 8000},
    "speed": 1.25,
    "volume_gain_db": -3,
    "pronunciations": {"SQL": "sequel"},
    "sampling": {"temperature": 0.7},
    "max_audio_ms": 1500,
}


async def test_the_receipt_of_a_clip_makes_it_again(stub: Any) -> None:
    for asked in ({}, PHONE):
        first = await stub.Synthesize(SynthesizeRequest(text=TEXT, config=asked))
        assert first.checkpoint and first.replay.sampling.seed == first.seed
        assert first.replay.voice.voice_id == first.voice_id
        again = await stub.Synthesize(SynthesizeRequest(text=TEXT, config=first.replay))
        assert_same_audio(again.audio, first.audio)
        assert (again.reason, again.replay, again.checkpoint) == (first.reason, first.replay, first.checkpoint)


async def test_the_receipt_of_an_utterance_holds_in_other_calls_too(stub: Any) -> None:
    settings = speak_pb2.SpeakConfig(synthesis=synthesis_pb2.SynthesisConfig(language="en"), max_lead_ms=0)
    transcript = await speak(stub, [settings, *map(say, TEXT)])
    started = next(response.started for response in transcript.responses if response.HasField("started"))
    clip = await stub.Synthesize(SynthesizeRequest(text=TEXT, config=started.replay))
    assert_same_audio(clip.audio, transcript.pcm["u1"])
