"""`Synthesize`, `SynthesizeStream`, `GetCapabilities` and the voices, through a real channel."""

import asyncio
import struct
from typing import Any

import grpc
import pytest

from sonorant.engine import EngineState, SynthesisParams
from sonorant.tts.v1 import audio_pb2, synthesis_pb2, voice_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    GetCapabilitiesRequest,
    SynthesizeRequest,
    SynthesizeStreamRequest,
)
from sonorant.tts.v1.voice_service_pb2 import (
    CreateVoiceRequest,
    DeleteVoiceRequest,
    GetVoiceRequest,
    ListVoicesRequest,
)
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.fake_streams import FakeStream
from tests.service.harness import eventually, failure, served, stands_still

SEEDED = {"sampling": {"seed": 7}}
WAV = {"audio": {"encoding": audio_pb2.AUDIO_ENCODING_WAV}}


async def test_synthesize_returns_the_clip_with_its_facts() -> None:
    async with served(FakeEngine()) as server:
        response = await server.stub.Synthesize(SynthesizeRequest(text="Hello", config=SEEDED))
        assert response.audio == spoken("Hello", 7)
        assert response.reason == synthesis_pb2.FINISH_REASON_COMPLETED
        assert (response.seed, response.voice_id) == (7, "ada")
        assert response.format.sample_rate_hz == 24_000
        assert response.stats.audio_ms == 800


async def test_synthesize_wav_has_true_sizes() -> None:
    async with served(FakeEngine()) as server:
        response = await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={**SEEDED, **WAV}))
        pcm = spoken("Hello", 7)
        assert response.audio[44:] == pcm
        assert struct.unpack("<I", response.audio[4:8])[0] == len(response.audio) - 8
        assert struct.unpack("<I", response.audio[40:44])[0] == len(pcm)


async def test_stream_is_the_same_audio_with_the_wav_header_alone_in_front() -> None:
    async with served(FakeEngine()) as server:
        request = SynthesizeStreamRequest(text="Hello", config={**SEEDED, **WAV})
        responses = [response async for response in server.stub.SynthesizeStream(request)]
        kinds = [response.WhichOneof("payload") for response in responses]
        assert (kinds[0], set(kinds[1:-1]), kinds[-1]) == ("started", {"audio"}, "done")
        header, *audio = [response.audio for response in responses[1:-1]]
        assert header.num_samples == 0
        assert header.data[:4] + header.data[8:12] == b"RIFFWAVE"
        assert len(header.data) == 44
        assert header.data[4:8] == header.data[40:44] == b"\xff" * 4
        assert b"".join(chunk.data for chunk in audio) == spoken("Hello", 7)
        ends_ms = [chunk.start_ms + chunk.num_samples // 24 for chunk in audio]
        assert [chunk.start_ms for chunk in audio] == [0, *ends_ms[:-1]]


async def test_whole_text_defaults_to_the_official_layout() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        engine.hold()
        call = server.stub.Synthesize(SynthesizeRequest(text="Hello"))
        other = server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"non_streaming_mode": False}))
        await eventually(lambda: engine.num_streams, 2)
        assert sorted(stream.params.non_streaming_mode for stream in engine.live.values()) == [False, True]
        engine.release()
        assert len((await call).audio) == len((await other).audio)


async def test_a_clip_too_long_for_one_message_is_refused_with_the_way_out() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        code, message, details = await failure(server.stub.Synthesize(SynthesizeRequest(text="a" * 600)))
        assert code == grpc.StatusCode.OUT_OF_RANGE
        assert "SynthesizeStream" in message
        assert details["ErrorInfo"].reason == "AUDIO_TOO_LONG"
        assert engine.num_streams == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "NO_SPEAKABLE_TEXT"),
        (" ?! \n", "NO_SPEAKABLE_TEXT"),
        ("a\x07b", "CONTROL_CHARACTER"),
        ("a" * 1_000_000, "TEXT_TOO_LONG"),
    ],
)
async def test_unusable_text(text: str, reason: str) -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        for call in (
            server.stub.Synthesize(SynthesizeRequest(text=text)),
            server.stub.SynthesizeStream(SynthesizeStreamRequest(text=text)),
        ):
            code, message, details = await failure(call)
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert details["ErrorInfo"].reason == reason
            assert details["BadRequest"].field_violations[0].field == "text"
            assert len(message) < 300


async def test_bytes_that_are_no_message_are_an_invalid_argument() -> None:
    async with served(FakeEngine()) as server:
        invalid_utf8 = b"\x12\x02\xc3\x28"  # field 2, text
        path = "/sonorant.tts.v1.TextToSpeechService/"
        unary = server.channel.unary_unary(path + "Synthesize")(invalid_utf8)
        stream = server.channel.unary_stream(path + "SynthesizeStream")(invalid_utf8)
        speak = server.channel.stream_stream(path + "Speak")()
        await speak.write(b"\x1a\x02\xc3\x28")
        for call in (unary, stream, speak):
            code, message, details = await failure(call)
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert "UTF-8" in message
            assert details["ErrorInfo"].reason == "MALFORMED_MESSAGE"


async def test_cancelling_a_stream_frees_the_engine() -> None:
    engine = FakeEngine(frame_s=0.01)
    async with served(engine) as server:
        call = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="story " * 50))
        await call.read()
        await call.read()
        call.cancel()
        await eventually(lambda: engine.num_streams, 0, 2)


async def test_a_reader_that_stops_gets_no_more_made_and_its_stream_is_freed_on_cancel() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        options = (("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0))
        async with grpc.aio.insecure_channel(server.address, options=options) as channel:
            call = type(server.stub)(channel).SynthesizeStream(SynthesizeStreamRequest(text="a" * 600))
            await call.read()
            await stands_still(server, engine)
            assert engine.num_streams == 1, "the server waits in the middle of a write"
            call.cancel()
            await eventually(lambda: engine.num_streams, 0, 2)


async def test_engine_errors_are_statuses() -> None:
    engine = FakeEngine(frame_s=0.01)
    async with served(engine) as server:
        engine.max_streams = 0
        code, _, details = await failure(server.stub.Synthesize(SynthesizeRequest(text="a")))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details["RetryInfo"].retry_delay.nanos == 500_000_000
        assert details["QuotaFailure"].violations[0].subject == "streams"
        engine.max_streams = 8
        call = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="a" * 100))
        await call.read()
        engine.enter(EngineState.RESTARTING)
        code, message, details = await failure(call)
        assert code == grpc.StatusCode.UNAVAILABLE
        assert "worker died" in message
        assert details["RetryInfo"].retry_delay.seconds == 2
        assert (await failure(server.stub.Synthesize(SynthesizeRequest(text="a"))))[0] == grpc.StatusCode.UNAVAILABLE


async def test_a_bug_tells_nothing_but_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        engine.info = None  # type: ignore[assignment]
        call = server.stub.Synthesize(SynthesizeRequest(text="a"), metadata=(("x-request-id", "r-1"),))
        code, message, details = await failure(call)
        assert (code, message) == (grpc.StatusCode.INTERNAL, "internal error, request_id=r-1")
        assert details["RequestInfo"].request_id == "r-1"
        assert "NoneType" in caplog.text


async def test_a_stray_cancellation_does_not_leave_the_client_waiting() -> None:
    class Stray(FakeEngine):
        def open(self, params: SynthesisParams, credit_frames: int = 48, *args: Any, **how: Any) -> FakeStream:
            raise asyncio.CancelledError

    engine = FakeEngine()
    async with served(engine) as server:
        engine.__class__ = Stray
        code, message, _ = await failure(server.stub.Synthesize(SynthesizeRequest(text="a"), timeout=60))
        assert code == grpc.StatusCode.INTERNAL
        assert message.startswith("internal error, request_id=")
        stream = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="a"), timeout=60)
        assert (await failure(stream))[0] == grpc.StatusCode.INTERNAL


async def test_sessions_are_limited() -> None:
    async with served(FakeEngine(frame_s=0.05), max_sessions=1) as server:
        call = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="aaaa"))
        await call.read()
        code, message, details = await failure(server.stub.Synthesize(SynthesizeRequest(text="a")))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "all 1 sessions" in message
        assert details["QuotaFailure"].violations[0].subject == "sessions"
        while await call.read() is not grpc.aio.EOF:
            pass
        assert (await server.stub.Synthesize(SynthesizeRequest(text="a"))).audio


async def test_capabilities() -> None:
    async with served(FakeEngine(), max_text_chars=99, max_sessions=5) as server:
        got = await server.stub.GetCapabilities(GetCapabilitiesRequest())
        assert (got.model, got.native_sample_rate_hz, list(got.sample_rates_hz)) == (
            "fake",
            24_000,
            [8_000, 16_000, 22_050, 24_000, 44_100, 48_000],
        )
        assert list(got.encodings) == audio_pb2.AudioEncoding.values()[1:], "PyAV is installed for the tests"
        assert list(got.languages) == ["english", "german"]
        assert (got.max_text_chars, got.max_sessions, got.active_sessions) == (99, 5, 0)
        assert got.server_version


async def test_voices_are_listed_in_pages_and_found() -> None:
    async with served(FakeEngine()) as server:
        first = await server.voices.ListVoices(ListVoicesRequest(page_size=1))
        second = await server.voices.ListVoices(ListVoicesRequest(page_size=1, page_token=first.next_page_token))
        assert [voice.voice_id for voice in (*first.voices, *second.voices)] == ["ada", "bob"]
        assert second.next_page_token == ""
        assert [*first.voices[0].languages] == ["english", "german"]
        for request, count in (
            (ListVoicesRequest(language="german"), 2),
            (ListVoicesRequest(language="klingon"), 0),
            (ListVoicesRequest(kind=voice_pb2.VOICE_KIND_PRESET), 2),
            (ListVoicesRequest(kind=voice_pb2.VOICE_KIND_CLONED), 0),
        ):
            assert len((await server.voices.ListVoices(request)).voices) == count
        voice = (await server.voices.GetVoice(GetVoiceRequest(voice_id="ADA"))).voice
        assert (voice.voice_id, voice.kind) == ("ada", voice_pb2.VOICE_KIND_PRESET)


async def test_voice_errors() -> None:
    async with served(FakeEngine()) as server:
        code, message, details = await failure(server.voices.GetVoice(GetVoiceRequest(voice_id="eve")))
        assert code == grpc.StatusCode.NOT_FOUND
        assert "ListVoices" in message
        assert details["ResourceInfo"].resource_name == "eve"
        for bad in (ListVoicesRequest(page_size=1001), ListVoicesRequest(page_token="x"), ListVoicesRequest(kind=9)):
            assert (await failure(server.voices.ListVoices(bad)))[0] == grpc.StatusCode.INVALID_ARGUMENT
        for call, expected, reason in (
            (
                server.voices.CreateVoice(CreateVoiceRequest(design="deep")),
                grpc.StatusCode.UNIMPLEMENTED,
                "VOICES_NOT_KEPT",
            ),
            (
                server.voices.DeleteVoice(DeleteVoiceRequest(voice_id="ada")),
                grpc.StatusCode.FAILED_PRECONDITION,
                "VOICE_IS_PRESET",
            ),
        ):
            code, _, details = await failure(call)
            assert code == expected
            assert details["ErrorInfo"].reason == reason
