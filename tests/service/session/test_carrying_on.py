"""A flush that carries on: what follows goes on in the same voice state, from memory or not, as if it had not ended.

The fake engine refuses frames that do not belong to the text, and what it says tells the frame of the stream.
"""

from typing import Any

import pytest

from sonorant.client.speaking.journal import Journal
from sonorant.service.audio.codes import parse
from sonorant.service.utterance import segments
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAMES_PER_CHAR, spoken
from tests.service.harness import Served, Transcript, config, details_of, end, flush, say, served, speak
from tests.service.scripts import SEED
from tests.service.session._support import Talk, check_codes, converse, settings

PHRASE, REST = "One moment please.", " Here it is."
MODES = [speak_pb2.COMMIT_MODE_TOKEN, speak_pb2.COMMIT_MODE_SENTENCE, speak_pb2.COMMIT_MODE_MANUAL]


def carry_on(flush_id: int = 1, **fields: Any) -> speak_pb2.SpeakRequest:
    return speak_pb2.SpeakRequest(flush={"flush_id": flush_id, "carry_on": True, **fields})


async def said(server: Served, *requests: speak_pb2.SpeakRequest, mode: int = MODES[2], **fields: Any) -> Transcript:
    first = config(sampling={"seed": SEED}, **fields)
    first.text_policy.mode = mode  # type: ignore[assignment]
    first.max_lead_ms = 0
    return await speak(server.stub, [first, *requests])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("non_streaming_mode", [False, True])
async def test_what_follows_goes_on_where_the_voice_was(mode: int, *, non_streaming_mode: bool) -> None:
    engine = FakeEngine(max_streams=1)
    parts = PHRASE, REST, " And so", " on."
    async with served(engine) as server:
        script = [say(parts[0]), carry_on(1), say(parts[1]), carry_on(2), say(parts[2]), carry_on(3), say(parts[3])]
        heard = await said(server, *script, mode=mode, non_streaming_mode=non_streaming_mode)
        assert heard.pcm["u1"] == spoken("".join(parts), SEED)
        told = [each.flush_done for each in heard.responses if each.HasField("flush_done")]
        assert [each.flush_id for each in told] == [1, 2, 3]
        assert told[0].audio_ms == len(PHRASE) * FRAMES_PER_CHAR * 80
        stats = heard.done["u1"].stats
        assert stats.codec_frames == len("".join(parts)) * FRAMES_PER_CHAR, "those before it count once"
        assert engine.num_opened == len(parts) and engine.num_streams == 0


async def test_without_it_what_follows_begins_anew() -> None:
    async with served(FakeEngine()) as server:
        heard = await said(server, say(PHRASE), carry_on(), say(REST), flush(2), say(" And so on."))
        assert heard.pcm["u1"] == spoken(PHRASE + REST, SEED) + spoken(" And so on.", SEED)


async def test_a_phrase_from_memory_is_a_beginning_like_any_other() -> None:
    """The same bytes, whether it was known or not; what goes on behind it is made, and is no phrase of its own."""
    engine = FakeEngine()
    script = [say(PHRASE), carry_on(), say(REST), end()]
    async with served(engine) as server:
        whole = (await said(server, *script)).pcm["u1"]
    async with served(engine := FakeEngine(), phrase_cache_bytes=4_000_000) as server:
        for number in range(3):
            heard = await said(server, *script)
            assert heard.pcm["u1"] == whole
            started = next(each.started for each in heard.responses if each.HasField("started"))
            assert started.from_phrase_cache == (number > 0)
            assert heard.done["u1"].stats.kept_frames == (len(PHRASE) * FRAMES_PER_CHAR if number else 0)
        assert engine.num_opened == 1 + 3, "the phrase once, and what follows each time"
        alone = await said(server, say(REST), end())
        assert alone.pcm["u1"] == spoken(REST, SEED) and engine.num_opened == 5


async def test_nothing_said_is_nothing_carried_and_what_was_before_stays() -> None:
    async with served(FakeEngine()) as server:
        heard = await said(server, carry_on(1), say(PHRASE), carry_on(2), say(" "), carry_on(3), say("Here."))
        assert heard.pcm["u1"] == spoken(PHRASE, SEED) + spoken(PHRASE + "Here.", SEED)[len(spoken(PHRASE)) :]


async def test_what_is_long_is_not_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_CARRIED_FRAMES", len(PHRASE + REST) * FRAMES_PER_CHAR - 1)
    async with served(FakeEngine()) as server:
        heard = await said(server, say(PHRASE), carry_on(1), say(REST), carry_on(2), say(" And so on."))
        assert heard.pcm["u1"] == spoken(PHRASE + REST, SEED) + spoken(" And so on.", SEED)


async def test_the_most_audio_is_that_of_the_utterance() -> None:
    async with served(FakeEngine()) as server:
        num_frames = (len(PHRASE) + 3) * FRAMES_PER_CHAR
        heard = await said(server, say(PHRASE), carry_on(), say(REST), max_audio_ms=num_frames * 80)
        assert heard.pcm["u1"] == spoken(PHRASE + REST[:3], SEED)
        assert heard.done["u1"].reason == synthesis_pb2.FINISH_REASON_MAX_AUDIO


async def test_a_pause_would_break_it() -> None:
    async with served(FakeEngine()) as server:
        heard = await said(server, say(PHRASE), carry_on(pause_ms=100))
        assert heard.done["u1"].reason == synthesis_pb2.FINISH_REASON_FAILED
        assert "flush.carry_on" in str(details_of(heard.done["u1"].error))


async def test_stored_codes_are_of_one_segment() -> None:
    async with served(FakeEngine()) as server:
        synthesis = synthesis_pb2.SynthesisConfig(audio={"encoding": audio_pb2.AUDIO_ENCODING_CODES})
        first = speak_pb2.SpeakRequest(config=speak_pb2.SpeakConfig(synthesis=synthesis, max_lead_ms=0))
        script = [first, say(PHRASE), carry_on(), say(REST), flush(2), say("Bye.")]
        codes = b"".join([each.audio.data async for each in converse(server, script)])
        lengths = [len(part) for part in parse(codes).segments]
        assert lengths == [len(PHRASE + REST) * FRAMES_PER_CHAR, len("Bye.") * FRAMES_PER_CHAR]


async def test_what_goes_on_may_be_revised() -> None:
    engine = FakeEngine(max_streams=1)
    async with served(engine) as server, Talk(server, settings()) as talk:
        await talk.write(say(PHRASE), carry_on(), say(" Here"))
        await talk.hear(len(PHRASE + " Here") * FRAMES_PER_CHAR)
        old = PHRASE + " Here it was."
        await talk.write(say(" it was."))
        answer = await talk.revise(len(old) - 4, "is.")
        await talk.write(end())
        transcript = await talk.finish()
    text = old[: answer.from_char] + "is."[answer.text_char :]
    assert talk.pcm == spoken(text, SEED)
    check_codes(transcript, text)


async def test_it_goes_on_in_another_session_too() -> None:
    speak_config = speak_pb2.SpeakConfig(
        synthesis=synthesis_pb2.SynthesisConfig(sampling={"seed": SEED}), max_lead_ms=0, resumable=True
    )
    async with served(FakeEngine()) as server:
        for limit in range(2, 2 + len(PHRASE + REST), 2):
            journal = Journal()
            script = [
                journal.text("", PHRASE),
                journal.flush("", speak_pb2.Flush(flush_id=1, carry_on=True)),
                journal.text("", REST),
                journal.end(""),
            ]
            pcm = b""
            for count_limit in (limit, None):
                count = 0
                async for response in converse(server, [speak_pb2.SpeakRequest(config=speak_config), *script]):
                    if response.HasField("session"):
                        continue
                    if journal.take(response):
                        pcm += response.audio.data
                        count += 1
                    if count == count_limit:
                        break
                script = journal.requests_to_resend()
            assert pcm == spoken(PHRASE + REST, SEED), limit
