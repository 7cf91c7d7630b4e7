"""A pause between two sentences of a real voice."""

from typing import Any

from sonorant.tts.v1 import speak_pb2
from tests.service.harness import assert_same_audio, say, speak


async def test_a_pause_changes_nothing_of_the_speech_around_it(stub: Any) -> None:
    heard = []
    for pause_ms in (0, 400):
        settings = speak_pb2.SpeakConfig(synthesis={"sampling": {"seed": 7}}, max_lead_ms=0)
        flush = speak_pb2.SpeakRequest(flush={"flush_id": 1, "pause_ms": pause_ms})
        transcript = await speak(stub, [settings, say("Hello. "), flush, say("Again.")])
        flush_done = next(r.flush_done for r in transcript.responses if r.HasField("flush_done"))
        heard.append((transcript.pcm["u1"], (flush_done.audio_ms - pause_ms) * 48))
    (plain, border), (paused, same_border) = heard
    assert border == same_border
    after = border + 400 * 48
    assert paused[border:after] == bytes(after - border)
    assert_same_audio(paused[:border] + paused[after:], plain)
