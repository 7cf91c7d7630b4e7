"""Markdown and SSML through the server: what is said, where it is in the caller's text, and who may set it."""

from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from sonorant.service.access.api_keys import ApiKeys, ApiKeysError
from sonorant.service.audio.gain import amplify
from sonorant.service.audio.pcm import Samples
from sonorant.service.audio.stretch import Stretcher
from sonorant.tts.v1 import explain_pb2, speak_pb2, synthesis_pb2
from sonorant.tts.v1.explain_pb2 import ExplainRequest
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest, SynthesizeRequest
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import Transcript, config, end, failure, read_all, read_until, say, served, speak
from tests.service.keys import ADA, bearer, table

SEEDED = {"sampling": {"seed": 7}}
MARKDOWN, SSML = synthesis_pb2.TEXT_FORMAT_MARKDOWN, synthesis_pb2.TEXT_FORMAT_SSML
TEXT = "# Hi\n**All** [here](https://a.b), & *so* on."
SAID = "Hi.\nAll here, & so on."


async def test_markdown_token_by_token_is_as_whole_and_marks_are_in_the_text_as_sent() -> None:
    async with served(FakeEngine()) as server:
        whole = await server.stub.Synthesize(
            SynthesizeRequest(text=TEXT, config={**SEEDED, "text_format": MARKDOWN}, timestamps=1)
        )
        assert whole.audio == spoken(SAID, 7)
        assert whole.replay.text_format == MARKDOWN
        assert [TEXT[mark.text_start : mark.text_end] for mark in whole.marks] == [
            "Hi",
            "All",
            "here](https://a.b),",
            "&",
            "so",
            "on.",
        ]
        call, transcript = server.stub.Speak(), Transcript()
        wanted = config(sampling={"seed": 7}, text_format=MARKDOWN)
        wanted.timestamps = 1
        await call.write(speak_pb2.SpeakRequest(config=wanted))
        for char in TEXT:
            await call.write(say(char))
        await call.write(end())
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["u1"] == whole.audio
        assert [(mark.text_start, mark.text_end) for mark in transcript.marks["u1"]] == [
            (mark.text_start, mark.text_end) for mark in whole.marks
        ]
        stats = transcript.done["u1"].stats
        assert (stats.input_chars, stats.spoken_chars) == (len(TEXT), len(TEXT))


async def test_revisions_count_in_the_text_as_sent() -> None:
    engine = FakeEngine(max_streams=1)
    async with served(engine) as server:
        engine.hold()
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config(sampling={"seed": 7}, text_format=MARKDOWN)))
        await call.write(say("**Hello** `old` one"))
        await call.write(speak_pb2.SpeakRequest(revise={"from_char": 10, "text": "*new* "}))
        await read_until(call, transcript, "revised")
        engine.release()
        await call.write(say("**one**"))
        await call.write(end())
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["u1"] == spoken("Hello new one", 7)
        assert transcript.done["u1"].stats.input_chars == len("**Hello** *new* **one**")


async def test_ssml_pauses_and_tells_what_it_leaves_out() -> None:
    async with served(FakeEngine()) as server:
        text = '<speak>One<break time="250ms"/><prosody pitch="high" range="low">two</prosody></speak>'
        clip = await server.stub.Synthesize(SynthesizeRequest(text=text, config={**SEEDED, "text_format": SSML}))
        assert clip.audio == spoken("One ", 7) + bytes(2 * 24 * 250) + spoken("two", 7)
        assert [(warning.code, warning.message) for warning in clip.warnings] == [
            ("MARKUP_IGNORED", "without effect: prosody pitch, prosody range")
        ]
        nothing = await server.stub.Synthesize(
            SynthesizeRequest(text="<break/><p></p>", config={**SEEDED, "text_format": SSML})
        )
        assert [warning.code for warning in nothing.warnings] == ["NO_SPEAKABLE_TEXT"]
        assert not nothing.audio
        code, message, details = await failure(
            server.stub.Synthesize(SynthesizeRequest(text="a <1>", config={**SEEDED, "text_format": SSML}))
        )
        assert (code, details["ErrorInfo"].reason) == (grpc.StatusCode.INVALID_ARGUMENT, "SSML_INVALID")
        assert "'<1>' begins no tag of SSML" in message


LOUDER = 'One <prosody volume="-6dB">two <prosody volume="+2dB">three</prosody></prosody> four.'
LOUDNESS = [("One ", 0), ("two ", -6), ("three ", -4), ("four.", 0)]


def at_volumes(base_db: float) -> bytes:
    parts = [(np.frombuffer(spoken(text, 7), np.int16), gain_db) for text, gain_db in LOUDNESS]
    return b"".join(amplify(part, base_db + gain_db).tobytes() for part, gain_db in parts)


@pytest.mark.parametrize("mode", [speak_pb2.COMMIT_MODE_TOKEN, speak_pb2.COMMIT_MODE_SENTENCE])
async def test_ssml_speaks_louder_and_quieter_however_it_is_cut(mode: speak_pb2.CommitMode) -> None:
    async with served(FakeEngine()) as server:
        for base_db in (0.0, 3.0):
            wanted = config(sampling={"seed": 7}, text_format=SSML, volume_gain_db=base_db)
            wanted.text_policy.mode = mode
            for size in (1, 7, len(LOUDER)):
                cut = [say(LOUDER[at : at + size]) for at in range(0, len(LOUDER), size)]
                transcript = await speak(server.stub, [wanted, *cut, end()])
                assert transcript.pcm["u1"] == at_volumes(base_db), (size, base_db)


FASTER = 'One <prosody rate="slow">two <prosody rate="+25%">three</prosody></prosody> four.'
RATES = [("One ", 1.0), ("two ", 0.64), ("three ", 0.8), ("four.", 1.0)]


def at_rates(base: float) -> list[Samples]:
    heard = list[Samples]()
    for text, speed in RATES:
        samples = np.frombuffer(spoken(text, 7), np.int16)
        stretcher = Stretcher(base * speed, 24_000)
        is_stretched = base * speed != 1
        heard.append(np.concatenate([stretcher.push(samples), stretcher.finish()]) if is_stretched else samples)
    return heard


@pytest.mark.parametrize("base", [1.0, 1.25])
async def test_ssml_speaks_faster_and_slower_however_it_is_cut(base: float) -> None:
    heard = at_rates(base)
    begins_ms = np.cumsum([0, *(len(each) / 24 for each in heard)])
    async with served(FakeEngine()) as server:
        wanted = config(sampling={"seed": 7}, text_format=SSML, speed=base)
        wanted.timestamps = 1
        for size in (1, 7, len(FASTER)):
            cut = [say(FASTER[at : at + size]) for at in range(0, len(FASTER), size)]
            transcript = await speak(server.stub, [wanted, *cut, end()])
            assert transcript.pcm["u1"] == b"".join(each.tobytes() for each in heard), size
            marks, done = transcript.marks["u1"], transcript.done["u1"]
            assert [FASTER[mark.text_start : mark.text_end] for mark in marks] == ["One", "two", "three", "four."]
            words_ms = np.array([mark.start_ms for mark in marks])
            assert (begins_ms[:4] <= words_ms + 1).all() and (words_ms <= begins_ms[1:] + 1).all()
            assert done.stats.sent_ms == pytest.approx(begins_ms[4], abs=1)
        told = await server.stub.Explain(ExplainRequest(text=FASTER, config=wanted.synthesis))
        frames = [segment.estimated_frames for segment in told.segments]
        rates = [base * speed for _, speed in RATES]
        assert told.estimated_audio_ms == round(sum(n * 80 / s for n, s in zip(frames, rates, strict=True)))


async def test_a_revision_may_change_the_volume() -> None:
    engine = FakeEngine(max_streams=1)
    async with served(engine) as server:
        engine.hold()
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config(sampling={"seed": 7}, text_format=SSML)))
        await call.write(say('<prosody volume="loud">One two'))
        at = len('<prosody volume="loud">One ')
        await call.write(speak_pb2.SpeakRequest(revise={"from_char": at, "text": "</prosody>four."}))
        await read_until(call, transcript, "revised")
        engine.release()
        await call.write(end())
        await call.done_writing()
        await read_all(call, transcript)
        loud = amplify(np.frombuffer(spoken("One ", 7), np.int16), 6).tobytes()
        assert transcript.pcm["u1"] == loud + spoken("four.", 7)


DIRECTED = "[whispering] Come closer. [pause 250ms][loudly]Now! [normal] So."


@pytest.mark.parametrize("text_format", [synthesis_pb2.TEXT_FORMAT_PLAIN, MARKDOWN])
async def test_directions_become_instructions_of_what_follows(text_format: int) -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        wanted = config(sampling={"seed": 7}, text_format=text_format, directions=True, instructions="Calm.")
        for size in (1, 5, len(DIRECTED)):
            engine.opened.clear()
            cut = [say(DIRECTED[at : at + size]) for at in range(0, len(DIRECTED), size)]
            transcript = await speak(server.stub, [wanted, *cut, end()])
            assert [each.instruct for each in engine.opened] == ["Calm. whispering", "Calm. loudly", "Calm."]
            pause = bytes(2 * 24 * 250)
            heard = [spoken(" Come closer. ", 7), pause, spoken("Now!  ", 7), spoken("So.", 7)]
            assert transcript.pcm["u1"] == b"".join(heard)
            replay = next(each.started.replay for each in transcript.responses if each.HasField("started"))
            assert replay.directions and replay.instructions == "Calm."


async def test_directions_that_no_checkpoint_follows_are_left_out_and_told() -> None:
    engine = FakeEngine(takes_instruct=False)
    async with served(engine) as server:
        request = SynthesizeRequest(text=DIRECTED, config={**SEEDED, "directions": True})
        clip = await server.stub.Synthesize(request)
        assert clip.audio == spoken(" Come closer. ", 7) + bytes(12_000) + spoken("Now!  So.", 7)
        assert [(warning.code, warning.message) for warning in clip.warnings] == [
            ("MARKUP_IGNORED", "without effect: [whispering], [loudly], [normal]")
        ]
        plain = await server.stub.Synthesize(SynthesizeRequest(text="[sadly] So.", config=SEEDED))
        assert plain.audio == spoken("[sadly] So.", 7), "only who asks for it has them read"


@pytest.mark.parametrize(("fields", "field"), [
    ({"text_format": SSML, "directions": True}, "config.directions"),
    ({"text_format": 9}, "config.text_format"),
    ({"leave_out": [1]}, "config.leave_out"),
    ({"text_format": MARKDOWN, "leave_out": [9]}, "config.leave_out"),
    ({"text_format": SSML, "leave_out": [1]}, "config.leave_out"),
])  # fmt: skip
async def test_formats_that_are_none(fields: dict[str, Any], field: str) -> None:
    async with served(FakeEngine()) as server:
        code, _, details = await failure(server.stub.Synthesize(SynthesizeRequest(text="a", config=fields)))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert [violation.field for violation in details["BadRequest"].field_violations] == [field]


async def test_explain_and_capabilities_tell_the_format() -> None:
    async with served(FakeEngine()) as server:
        able = await server.stub.GetCapabilities(GetCapabilitiesRequest())
        assert list(able.text_formats) == [1, 2, 3]
        told = await server.stub.Explain(explain_pb2.ExplainRequest(text=TEXT, config={"text_format": MARKDOWN}))
        assert told.text == " ".join(SAID.split()) or told.text == SAID
        assert (told.segments[0].text_start, told.segments[0].text_end) == (2, len(TEXT))


async def test_a_key_may_have_a_format_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(table("ada", ADA, 'text_format = "markdown"'))
    async with served(FakeEngine(), api_keys=file) as server:
        clip = await server.stub.Synthesize(SynthesizeRequest(text=TEXT, config=SEEDED), metadata=bearer(ADA))
        assert clip.audio == spoken(SAID, 7)
        plain = SynthesizeRequest(text=TEXT, config={**SEEDED, "text_format": synthesis_pb2.TEXT_FORMAT_PLAIN})
        assert (await server.stub.Synthesize(plain, metadata=bearer(ADA))).audio == spoken(TEXT, 7)
        able = await server.stub.GetCapabilities(GetCapabilitiesRequest(), metadata=bearer(ADA))
        assert able.text_formats[0] == MARKDOWN
    file.write_text(table("ada", ADA, 'text_format = "html"'))
    with pytest.raises(ApiKeysError, match=r"text_format must be one of plain, markdown, ssml, not 'html'"):
        ApiKeys(file)
