"""Voices through a real channel: made, refused, and spoken with by every RPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from sonorant.client import AudioChunk, SpeechClient, synthesis_config
from sonorant.hosting.addresses import reserved_port
from sonorant.service.admission import room
from sonorant.service.rpc import voices as voice_servicer
from sonorant.tts.v1 import explain_pb2, speak_pb2, voice_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    GetCapabilitiesRequest,
    SynthesizeRequest,
    SynthesizeStreamRequest,
)
from sonorant.tts.v1.voice_service_pb2 import (
    CreateVoiceRequest,
    DeleteVoiceRequest,
    GetVoiceRequest,
    UploadVoiceRequest,
)
from tests.service.fake_engine import MS_PER_BYTE, FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import config, eventually, failure, say, served, speak
from tests.service.voice_calls import CODE, CONSENT, RECORDING, clone, ids, pieces, refused


async def test_a_clone_is_made_kept_and_spoken_with_by_every_rpc(tmp_path: Path) -> None:
    engine = FakeEngine(task="base")
    async with served(engine, voices_dir=tmp_path) as server:
        assert (await server.stub.GetCapabilities(GetCapabilitiesRequest())).supports_cloning
        made = (await server.voices.CreateVoice(clone("anna", voice={"display_name": "Ännä"}))).voice
        assert (made.voice_id, made.kind, made.model) == ("anna", voice_pb2.VOICE_KIND_CLONED, "fake")
        assert (made.consent, made.transcript, made.reference_audio_ms) == (
            CONSENT,
            "hello",
            MS_PER_BYTE * len(RECORDING),
        )
        assert (await server.voices.GetVoice(GetVoiceRequest(voice_id="ANNA"))).voice == made
        voice = {"voice_id": "Anna"}
        response = await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"voice": voice}))
        assert response.audio and response.voice_id == "anna"
        call = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="Hello", config={"voice": voice}))
        assert [part.started.voice_id async for part in call if part.HasField("started")] == ["anna"]
        transcript = await speak(server.stub, [config(voice=voice), say("Hello")])
        assert transcript.pcm["u1"]
        told = await server.stub.Explain(explain_pb2.ExplainRequest(config={"voice": voice}))
        assert told.voice_id == "anna" and [error.code for error in told.errors] == [CODE.INVALID_ARGUMENT.value[0]]
        assert engine.num_encoded == 1, "encoded once, when it was made"
    expected = await engine.encode_reference(RECORDING, with_codes=True)
    assert len(engine.opened) == 3
    for params in engine.opened:
        np.testing.assert_array_equal(params.x_vector, expected.x_vector)
        np.testing.assert_array_equal(params.reference_codes, expected.codes)
        assert (params.reference_text, params.speaker) == ("hello", None)
    async with served(engine, voices_dir=tmp_path) as server:  # it outlasts the server
        assert (await server.voices.GetVoice(GetVoiceRequest(voice_id="anna"))).voice == made


async def test_one_shot_voices_and_their_stored_twins_are_the_same(tmp_path: Path) -> None:
    engine = FakeEngine(task="base")
    embedding = {"values": range(8)}
    parts = [{"speaker_embedding": {"values": [x] * 8}, "weight": x} for x in (1.0, 3.0)]
    async with served(engine, voices_dir=tmp_path) as server:
        for source in (
            {"reference": {"audio": RECORDING, "transcript": "hello"}},
            {"reference": {"audio": RECORDING}},
            {"speaker_embedding": embedding},
            {"mix": {"voices": parts}},
            {"mix": {"voices": parts, "method": voice_pb2.MIX_METHOD_SPHERICAL}},
        ):
            one_shot = await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"voice": source}))
            assert one_shot.voice_id == ""
            made = (await server.voices.CreateVoice(CreateVoiceRequest(consent=CONSENT, **source))).voice
            assert made.voice_id.startswith("voice-")
            await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"voice": {"voice_id": made.voice_id}}))
            here, there = engine.opened[-2:]
            np.testing.assert_array_equal(here.x_vector, there.x_vector)
            np.testing.assert_array_equal(here.reference_codes, there.reference_codes)
            assert here.reference_text == there.reference_text


async def test_mixes_of_presets_and_stored_voices(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with served(engine, voices_dir=tmp_path) as server:

        async def mixed(*parts: tuple[str, float], voice_id: str = "") -> Any:
            mix = {"voices": [{"voice_id": name, "weight": weight} for name, weight in parts]}
            return (await server.voices.CreateVoice(CreateVoiceRequest(mix=mix, voice_id=voice_id))).voice

        async def embedding(voice_id: str) -> Any:
            await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"voice": {"voice_id": voice_id}}))
            return engine.opened[-1].x_vector

        half = await mixed(("ada", 1), ("Bob", 1), voice_id="half")
        assert half.kind == voice_pb2.VOICE_KIND_MIXED and not half.consent
        np.testing.assert_array_equal(await embedding("half"), np.full(8, 0.5))
        await mixed(("half", 1), ("bob", 3), voice_id="most")
        np.testing.assert_array_equal(await embedding("most"), np.full(8, 0.875))
        await mixed(("ada", 0), ("bob", 2), voice_id="all")
        np.testing.assert_array_equal(await embedding("all"), engine.speaker_embedding("bob"))
        await server.voices.DeleteVoice(DeleteVoiceRequest(voice_id="half"))
        np.testing.assert_array_equal(await embedding("most"), np.full(8, 0.875))


@pytest.mark.parametrize(
    ("mix", "code", "named"),
    [
        ({}, CODE.INVALID_ARGUMENT, "mix.voices"),
        ({"voices": [{"voice_id": "ada", "weight": 1}]}, CODE.INVALID_ARGUMENT, "mix.voices"),
        ({"voices": [{"voice_id": "ada", "weight": 1}] * 9}, CODE.INVALID_ARGUMENT, "mix.voices"),
        ({"voices": [{"voice_id": "ada"}] * 2}, CODE.INVALID_ARGUMENT, "mix"),
        ({"voices": [{"voice_id": "ada", "weight": -1}] * 2}, CODE.INVALID_ARGUMENT, "mix.voices[0].weight"),
        ({"voices": [{"voice_id": "ada", "weight": float("nan")}] * 2}, CODE.INVALID_ARGUMENT, "mix.voices[0].weight"),
        ({"voices": [{"weight": 1}] * 2}, CODE.INVALID_ARGUMENT, "mix.voices[0]"),
        ({"voices": [{"voice_id": "eve", "weight": 1}] * 2}, CODE.NOT_FOUND, "eve"),
        (
            {"voices": [{"voice_id": "ada", "weight": 1}, {"speaker_embedding": {"values": [1.0]}, "weight": 1}]},
            CODE.INVALID_ARGUMENT,
            "mix.voices[1].speaker_embedding",
        ),
        ({"voices": [{"voice_id": "ada", "weight": 1}] * 2, "method": 9}, CODE.INVALID_ARGUMENT, "mix.method"),
    ],
)
async def test_mixes_that_cannot_be(mix: Any, code: grpc.StatusCode, named: str, tmp_path: Path) -> None:
    async with served(FakeEngine(), voices_dir=tmp_path) as server:
        call = server.voices.CreateVoice(CreateVoiceRequest(mix=mix))
        assert (await refused(call))[::2] == (code, named)


async def test_designed_voices(tmp_path: Path) -> None:
    engine = FakeEngine(task="voice_design")
    async with served(engine, voices_dir=tmp_path) as server:
        made = (await server.voices.CreateVoice(CreateVoiceRequest(voice_id="giant", design="deep, slow"))).voice
        assert (made.kind, made.design, made.consent) == (voice_pb2.VOICE_KIND_DESIGNED, "deep, slow", "")
        await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"voice": {"voice_id": "giant"}}))
        assert engine.opened[-1].instruct == "deep, slow"
        both = SynthesizeRequest(text="x", config={"voice": {"voice_id": "giant"}, "instructions": "sadly"})
        assert await refused(server.stub.Synthesize(both)) == (
            CODE.INVALID_ARGUMENT,
            "INVALID_FIELD",
            "config.instructions",
        )
        for design in (" ", "x" * 1025):
            call = server.voices.CreateVoice(CreateVoiceRequest(design=design))
            assert (await refused(call))[::2] == (CODE.INVALID_ARGUMENT, "design")
        reason = (CODE.UNIMPLEMENTED, "CHECKPOINT_LACKS_CLONING")
        assert (await refused(server.voices.CreateVoice(clone())))[:2] == reason
        embedding = CreateVoiceRequest(speaker_embedding={"values": [1.0] * 8})
        assert (await refused(server.voices.CreateVoice(embedding)))[:2] == reason
    async with served(FakeEngine(), voices_dir=tmp_path) as server:
        reason = (CODE.UNIMPLEMENTED, "CHECKPOINT_LACKS_DESIGN")
        request = SynthesizeRequest(text="x", config={"voice": {"voice_id": "giant"}})
        assert (await refused(server.stub.Synthesize(request)))[:2] == reason
        assert (await refused(server.voices.CreateVoice(CreateVoiceRequest(design="deep"))))[:2] == reason


async def test_uploads_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(task="base")
    monkeypatch.setattr(voice_servicer, "MAX_UPLOAD_BYTES", 100)
    monkeypatch.setattr(voice_servicer, "UPLOAD_TIMEOUT_S", 0.3)
    begin = clone("anna", reference={"transcript": "hello"})
    async with served(engine, voices_dir=tmp_path) as server:
        upload = server.voices.UploadVoice
        made = (await upload(pieces(begin, RECORDING[:3], b"", RECORDING[3:]))).voice
        assert made.reference_audio_ms == MS_PER_BYTE * len(RECORDING)
        await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"voice": {"voice_id": "anna"}}))
        expected = await engine.encode_reference(RECORDING, with_codes=True)
        np.testing.assert_array_equal(engine.opened[-1].reference_codes, expected.codes)

        create, audio = UploadVoiceRequest(create=begin), UploadVoiceRequest(audio=b"x")
        for messages, named in (
            ([audio], "audio"),
            ([create, create], "create"),
            ([create, UploadVoiceRequest()], "payload"),
            ([UploadVoiceRequest(create=clone("berta"))], "create.reference.audio"),
            ([UploadVoiceRequest(create=CreateVoiceRequest(design="deep"))], "create.source"),
            ([create, *[UploadVoiceRequest(audio=b"x" * 60)] * 2], "audio"),
            ([UploadVoiceRequest(create=clone(reference={"transcript": "hello"}))], "reference.audio"),
        ):
            assert (await refused(upload(iter(messages))))[::2] == (CODE.INVALID_ARGUMENT, named), messages

        await server.voices.DeleteVoice(DeleteVoiceRequest(voice_id="anna"))
        slow = upload()
        await slow.write(create)
        assert (await refused(slow))[:2] == (CODE.INVALID_ARGUMENT, "UPLOAD_TOO_SLOW")
        cancelled = upload()
        await cancelled.write(create)
        await cancelled.write(UploadVoiceRequest(audio=RECORDING))
        cancelled.cancel()
        await asyncio.sleep(0.1)
        assert await ids(server) == []


async def test_only_so_many_bring_a_voice_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_UPLOADS", 1)
    async with served(FakeEngine(task="base"), voices_dir=tmp_path) as server:
        begin = clone("anna", reference={"transcript": "hello"})
        upload, create = server.voices.UploadVoice, UploadVoiceRequest(create=begin)
        first = upload()
        await first.write(create)
        await eventually(lambda: refused(upload(pieces(begin))), (CODE.RESOURCE_EXHAUSTED, "LIMIT_REACHED", ""))
        await first.write(UploadVoiceRequest(audio=RECORDING))
        await first.done_writing()
        assert (await first).voice.voice_id == "anna"


async def test_checks_come_before_anything_is_made(tmp_path: Path) -> None:
    engine = FakeEngine(task="base")
    async with served(engine, voices_dir=tmp_path) as server:
        create = server.voices.CreateVoice
        would_be = (await create(clone("anna", validate_only=True))).voice
        assert (would_be.voice_id, would_be.reference_audio_ms) == ("anna", MS_PER_BYTE * len(RECORDING))
        assert (await create(clone(validate_only=True, consent=""))).voice.voice_id == "", "nobody is cloned"
        bad = {"audio": b"bad", "transcript": "hello"}
        for request, expected in (
            (clone("anna", reference=bad), (CODE.INVALID_ARGUMENT, "RECORDING_UNREADABLE", "reference.audio")),
            (
                clone("anna", reference=bad, validate_only=True),
                (CODE.INVALID_ARGUMENT, "RECORDING_UNREADABLE", "reference.audio"),
            ),
            (clone("anna", reference={}), (CODE.INVALID_ARGUMENT, "RECORDING_UNREADABLE", "reference.audio")),
            (
                clone(reference={"audio": RECORDING, "transcript": " "}),
                (CODE.INVALID_ARGUMENT, "INVALID_FIELD", "reference.transcript"),
            ),
            (
                clone(reference={"audio": RECORDING, "transcript": "x" * 4097}),
                (CODE.INVALID_ARGUMENT, "TEXT_TOO_LONG", "reference.transcript"),
            ),
            (clone(consent=""), (CODE.INVALID_ARGUMENT, "CONSENT_REQUIRED", "consent")),
            (
                CreateVoiceRequest(speaker_embedding={"values": [1.0] * 7}),
                (CODE.INVALID_ARGUMENT, "INVALID_FIELD", "speaker_embedding"),
            ),
        ):
            assert await refused(create(request)) == expected
        one_shot = SynthesizeRequest(text="x", config={"voice": {"reference": bad}})
        assert await refused(server.stub.Synthesize(one_shot)) == (
            CODE.INVALID_ARGUMENT,
            "RECORDING_UNREADABLE",
            "config.voice.reference.audio",
        )
        session = server.stub.Speak()
        await session.write(speak_pb2.SpeakRequest(config=config(voice={"reference": bad})))
        assert (await refused(session))[1:] == (
            "RECORDING_UNREADABLE",
            "config.synthesis.voice.reference.audio",
        )
        assert await ids(server) == [] and engine.num_encoded == 0


async def test_a_recording_waits_for_as_long_as_its_caller_would_for_a_place() -> None:
    engine = FakeEngine(task="base")
    voice = {"reference": {"audio": RECORDING}}
    async with served(engine) as server:
        request = SynthesizeRequest(text="x", config={"voice": voice}, scheduling={"max_wait_ms": 30_000})
        await server.stub.Synthesize(request)
        assert engine.recording_wait_s == 30
        opening = config(voice=voice)
        opening.scheduling.max_wait_ms = 20_000
        await speak(server.stub, [opening, say("Hello")])
        assert engine.recording_wait_s == 20


async def test_repeated_requests_make_one_voice(tmp_path: Path) -> None:
    engine = FakeEngine(task="base")
    async with served(engine, voices_dir=tmp_path) as server:
        create = server.voices.CreateVoice
        first = await create(clone(request_id="r1"))
        assert await create(clone(request_id="r1")) == first
        assert engine.num_encoded == 1
        reused = (CODE.ALREADY_EXISTS, "REQUEST_ID_REUSED", "")
        assert await refused(create(clone(request_id="r1", consent="Berta"))) == reused
        at_once = await asyncio.gather(*(create(clone("berta", request_id="r2")) for _ in range(5)))
        assert at_once == [at_once[0]] * 5
        assert sorted(await ids(server)) == sorted([first.voice.voice_id, "berta"])
        assert await refused(create(clone("berta"))) == (CODE.ALREADY_EXISTS, "VOICE_EXISTS", "berta")
        upload = server.voices.UploadVoice
        begin = clone("carla", reference={"transcript": "hello"}, request_id="r3")
        uploaded = await upload(pieces(begin, RECORDING))
        assert (await upload(pieces(begin, RECORDING[:1], RECORDING[1:]))).voice == uploaded.voice
        assert (await refused(upload(pieces(begin, b"another")))) == reused


async def test_base_without_a_voice_says_what_to_do() -> None:
    async with served(FakeEngine(task="base")) as server:
        code, message, details = await failure(server.stub.Synthesize(SynthesizeRequest(text="x")))
        assert code == CODE.INVALID_ARGUMENT and "give it a voice" in message
        assert details["BadRequest"].field_violations[0].field == "config.voice"


async def test_instructions_that_are_not_taken_are_a_warning_never_silence(tmp_path: Path) -> None:
    async with served(FakeEngine(task="base", takes_instruct=False), voices_dir=tmp_path) as server:
        await server.voices.CreateVoice(clone("anna"))
        request = SynthesizeRequest(text="x", config={"voice": {"voice_id": "anna"}, "instructions": "sadly"})
        response = await server.stub.Synthesize(request)
        assert [warning.code for warning in response.warnings] == ["INSTRUCTIONS_IGNORED"]


async def test_a_session_with_a_recording_goes_on_at_another_server() -> None:
    """Which encodes the recording anew: the client sends it along when it resumes."""
    first, second = FakeEngine(task="base"), FakeEngine(task="base")
    with reserved_port("127.0.0.1:0", "--listen") as address:
        async with AsyncExitStack() as stack, SpeechClient(address) as client:
            await stack.enter_async_context(served(first, listen=address))
            voice = synthesis_config(reference=RECORDING, transcript="hello", seed=7)
            async with client.speak(voice, max_lead_ms=100, text="ab") as session:
                events = aiter(session)
                heard = [event.payload.data async for event in until_audio(events)]
                await stack.aclose()
                async with served(second, listen=address):
                    await session.send_text("cd")
                    await session.finish()
                    heard += [event.payload.data async for event in events if isinstance(event.payload, AudioChunk)]
    assert b"".join(heard) == spoken("abcd", seed=7)
    assert first.num_encoded and second.num_encoded
    np.testing.assert_array_equal(first.opened[0].x_vector, second.opened[0].x_vector)


async def until_audio(events: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for event in events:
        if isinstance(event.payload, AudioChunk):
            yield event
            return
