"""A real voice whose text changes while it speaks."""

from typing import Any

import pytest

from sonorant.tts.v1 import speak_pb2
from tests.service.harness import Transcript, assert_same_audio, end, read_all, read_until, say, speak

OLD = "The train to London leaves in twenty minutes from the second platform."
NEW = "The train to London leaves in twenty minutes from the harbour, they say."
PLACE = 54


@pytest.mark.slow
async def test_what_nobody_heard_is_spoken_as_if_it_had_always_been_so(stub: Any) -> None:
    settings = speak_pb2.SpeakConfig(synthesis={"sampling": {"seed": 7}}, max_lead_ms=240)
    plain = await speak(stub, [speak_pb2.SpeakConfig(synthesis=settings.synthesis, max_lead_ms=0), say(NEW), end()])
    call, transcript = stub.Speak(), Transcript()
    await call.write(speak_pb2.SpeakRequest(config=settings))
    await call.write(say(OLD))
    await read_until(call, transcript, "audio")
    await call.write(speak_pb2.SpeakRequest(revise={"from_char": PLACE, "text": NEW[PLACE:]}))
    await read_until(call, transcript, "revised")
    revised = transcript.responses[-1].revised
    assert (revised.from_char, revised.text_char) == (PLACE, 0)
    await call.write(speak_pb2.SpeakRequest(playback={"played_ms": 60_000}))
    await call.write(end())
    await call.done_writing()
    await read_all(call, transcript)
    assert OLD[:PLACE] == NEW[:PLACE]
    assert_same_audio(transcript.pcm["u1"], plain.pcm["u1"])
    assert transcript.done["u1"].stats.spoken_chars == len(NEW)
