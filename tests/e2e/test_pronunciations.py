"""Respelled words through real workers: the speech of the respelling."""

from typing import Any

from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.explain_pb2 import ExplainRequest
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service.harness import assert_same_audio, say, speak

TEXT, SAID = "The SQL is fine.", "The sequel is fine."
RESPELLED = {"pronunciations": {"SQL": "sequel"}, "sampling": {"seed": 7}}
AS_IT_IS = {"sampling": {"seed": 7}}


async def test_a_respelled_word_sounds_like_its_respelling(stub: Any) -> None:
    respelled = await stub.Synthesize(SynthesizeRequest(text=TEXT, config=RESPELLED, timestamps=1))
    written = await stub.Synthesize(SynthesizeRequest(text=SAID, config=AS_IT_IS, timestamps=1))
    assert_same_audio(respelled.audio, written.audio)
    as_it_is = await stub.Synthesize(SynthesizeRequest(text=TEXT, config=AS_IT_IS))
    assert len(as_it_is.audio) != len(written.audio)
    times = [[(mark.start_ms, mark.end_ms) for mark in clip.marks] for clip in (respelled, written)]
    assert times[0] == times[1], "a word lasts as long as what is said for it"
    assert [TEXT[mark.text_start : mark.text_end] for mark in respelled.marks] == TEXT.split()
    explained = await stub.Explain(ExplainRequest(text=TEXT, config=RESPELLED))
    assert (explained.text, [*explained.errors]) == (SAID, [])


async def test_it_does_not_matter_how_the_text_comes(stub: Any) -> None:
    heard = []
    for text, synthesis in ((TEXT, RESPELLED), (SAID, AS_IT_IS)):
        settings = speak_pb2.SpeakConfig(synthesis=synthesis, max_lead_ms=0)
        heard.append((await speak(stub, [settings, *map(say, text)])).pcm["u1"])
    assert_same_audio(*heard)
