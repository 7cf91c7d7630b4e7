"""A real voice speaks a text of two segments: the first as its words come, the second as where the whole text is there.
That depends on nothing but the text."""

from collections.abc import Sequence
from typing import Any

import pytest

from sonorant.client import AudioChunk, Resumed, SpeechClient, synthesis_config
from sonorant.tts.v1 import speak_pb2
from tests.cutting_proxy import CuttingProxy
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Transcript, assert_same_audio, end, read_all, read_until, say, speak

FIRST = "The train to the coast leaves at nine. Nobody has told the others yet. We can have breakfast in the kitchen. "
SECOND = "Please bring the red umbrella and a warm coat. It may rain."
OTHER = "Please bring the red umbrella, and come back before it rains."
PLACE = SECOND.index(" and")  # from here on they differ
LEAD_MS = 8000  # more than the first segment has, less than both
SYNTHESIS = {"voice": {"voice_id": "linden"}, "sampling": {"seed": 7}}
AT_ONCE = speak_pb2.SpeakConfig(synthesis=SYNTHESIS, max_lead_ms=0)


async def spoken(stub: Any, pieces: Sequence[str]) -> bytes:
    return (await speak(stub, [AT_ONCE, *map(say, pieces), end()])).pcm["u1"]


async def test_all_but_the_first_segment_sound_as_where_the_whole_text_is_there(
    stub: Any, server: ServerProcess
) -> None:
    by_words = await spoken(stub, (FIRST + SECOND).replace(" ", " |").split("|"))
    assert_same_audio(by_words, await spoken(stub, [FIRST + SECOND]))
    async with SpeechClient(server.address) as client:
        whole, first = [
            (await client.synthesize(text, synthesis_config(voice="linden", seed=7))).audio
            for text in (FIRST + SECOND, FIRST)
        ]
        layout_of_words = synthesis_config(voice="linden", seed=7, non_streaming_mode=False)
        first_by_words = (await client.synthesize(FIRST, layout_of_words)).audio
    assert first_by_words != first
    assert_same_audio(by_words[: len(first_by_words)], first_by_words)
    assert_same_audio(by_words[len(first_by_words) :], whole[len(first) :])


async def test_a_later_segment_is_revised_before_anyone_heard_it(stub: Any) -> None:
    plain = await spoken(stub, [FIRST + OTHER])
    call, transcript = stub.Speak(), Transcript()
    await call.write(speak_pb2.SpeakRequest(config=speak_pb2.SpeakConfig(synthesis=SYNTHESIS, max_lead_ms=240)))
    await call.write(say(FIRST + SECOND))
    await read_until(call, transcript, "audio")
    from_char = len(FIRST) + PLACE
    await call.write(speak_pb2.SpeakRequest(revise={"from_char": from_char, "text": OTHER[PLACE:]}))
    await read_until(call, transcript, "revised")
    assert transcript.responses[-1].revised.from_char == from_char
    await call.write(speak_pb2.SpeakRequest(playback={"played_ms": 60_000}))
    await call.write(end())
    await call.done_writing()
    await read_all(call, transcript)
    assert_same_audio(transcript.pcm["u1"], plain)
    assert transcript.done["u1"].stats.spoken_chars == len(FIRST + OTHER)


@pytest.mark.slow
async def test_a_listener_whose_connection_is_cut_in_the_second_segment_hears_every_sample_once(
    stub: Any, server: ServerProcess
) -> None:
    whole, first = await spoken(stub, [FIRST + SECOND]), await spoken(stub, [FIRST])
    heard, resumed = b"", 0
    async with (
        CuttingProxy(server.port) as proxy,
        SpeechClient(f"127.0.0.1:{proxy.port}") as client,
        client.speak(synthesis_config(voice="linden", seed=7), max_lead_ms=LEAD_MS) as session,
    ):
        await session.send_text(FIRST + SECOND)
        await session.finish()
        async for event in session:
            match event.payload:
                case AudioChunk() as audio:
                    heard += audio.data
                    if not resumed and len(heard) > len(first) + 24_000:
                        proxy.cut()
                case Resumed():
                    resumed += 1
    assert resumed >= 1
    assert_same_audio(heard, whole)
