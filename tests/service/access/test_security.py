"""Who may come in, over what, and what is refused before it costs anything: through a real server and channel."""

import asyncio
import urllib.request
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from sonorant.hosting.tls import TlsError, TlsFiles
from sonorant.service import server as server_module
from sonorant.service.access.tls import server_credentials
from sonorant.service.listening.ports import MAX_RECEIVED_BYTES, SPARE_CALLS
from sonorant.service.rpc.services import REFLECTION_V1
from sonorant.tts.v1 import speak_pb2, voice_service_pb2
from sonorant.tts.v1.explain_pb2 import ExplainRequest
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_COMPLETED
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    GetCapabilitiesRequest,
    SynthesizeRequest,
    SynthesizeStreamRequest,
)
from tests.e2e.server_process import refused
from tests.service.certificates import Certificates
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import (
    Served,
    Transcript,
    config,
    details_of,
    end,
    eventually,
    failure,
    read_all,
    read_until,
    say,
    served,
    speak,
)
from tests.service.keys import ADA, BOB, bearer, table
from tests.service.raw_http2 import raw_connection

HELLO = SynthesizeRequest(text="Hello", config={"sampling": {"seed": 7}})


def replace(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text(table("ada", ADA) + table("bob", BOB, 'max_sessions = 1\nmax_text_chars = 9\nvoices = ["bob"]'))
    return path


async def test_a_key_opens_every_method_and_nothing_else_does(keys: Path) -> None:
    async with served(FakeEngine(), api_keys=keys) as server:
        stub, voices = server.stub, server.voices
        calls: list[tuple[Any, Any]] = [
            (stub.Synthesize, HELLO),
            (stub.SynthesizeStream, SynthesizeStreamRequest(text="Hello")),
            (stub.GetCapabilities, GetCapabilitiesRequest()),
            (voices.ListVoices, voice_service_pb2.ListVoicesRequest()),
        ]
        for method, request in calls:
            for metadata, reason in (
                ((), "API_KEY_MISSING"),
                ((("authorization", f"Basic {ADA}"),), "API_KEY_MISSING"),
                (bearer("another"), "API_KEY_UNKNOWN"),
                (bearer(""), "API_KEY_UNKNOWN"),
                ((("x-api-key", f"{ADA}x"),), "API_KEY_UNKNOWN"),
            ):
                code, message, details = await failure(method(request, metadata=metadata))
                assert (code, details["ErrorInfo"].reason) == (grpc.StatusCode.UNAUTHENTICATED, reason)
                assert ADA not in message
        assert (await failure(stub.Speak()))[0] == grpc.StatusCode.UNAUTHENTICATED
        for metadata in (bearer(ADA), (("authorization", f"bearer {ADA}"),), (("x-api-key", ADA),)):
            assert (await stub.Synthesize(HELLO, metadata=metadata)).audio == spoken("Hello", 7)
        call, transcript = stub.Speak(metadata=bearer(ADA)), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("Hello"))
        await call.done_writing()
        await read_until(call, transcript, "done")


async def test_a_refused_call_is_answered_before_its_request_comes(keys: Path) -> None:
    async with served(FakeEngine(), api_keys=keys) as server:
        request = SynthesizeRequest(text="a" * (MAX_RECEIVED_BYTES - 100))
        code, _, _ = await failure(server.stub.Synthesize(request))
        assert code == grpc.StatusCode.UNAUTHENTICATED


async def test_health_and_reflection_are_open_by_choice(keys: Path) -> None:
    async def reflect(server: Served, metadata: Any = ()) -> grpc.StatusCode:
        call = server.channel.stream_stream(f"/{REFLECTION_V1}/ServerReflectionInfo")(metadata=metadata)
        await call.done_writing()
        return await call.code()

    async with served(FakeEngine(), api_keys=keys) as server:  # whose harness asks for health without a key
        assert await reflect(server) == grpc.StatusCode.UNAUTHENTICATED
        assert await reflect(server, bearer(ADA)) == grpc.StatusCode.OK
    async with served(FakeEngine(), api_keys=keys, open_services=("health", "reflection")) as server:
        assert await reflect(server) == grpc.StatusCode.OK
    engine = FakeEngine()
    engine.state = engine.state.STARTING  # so that the harness does not wait for health
    async with served(engine, api_keys=keys, open_services=()) as server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.health()
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_limits_of_a_key(keys: Path) -> None:
    async with served(FakeEngine(), api_keys=keys) as server:
        call, transcript = server.stub.Speak(metadata=bearer(BOB)), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await read_until(call, transcript, "session")
        assert transcript.responses[0].session.max_utterance_chars == 9
        explain = server.stub.Explain(ExplainRequest(text="Hello"), metadata=bearer(BOB))
        for one_too_many in (server.stub.Synthesize(HELLO, metadata=bearer(BOB)), explain):
            code, _, details = await failure(one_too_many)
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert details["QuotaFailure"].violations[0].subject == "sessions of this key"
        await server.stub.Synthesize(HELLO, metadata=bearer(ADA))
        await call.write(say("Hello, world"))
        await read_until(call, transcript, "done")
        assert "limit of 9" in transcript.done["u1"].error.message
        capabilities = await server.stub.GetCapabilities(GetCapabilitiesRequest(), metadata=bearer(BOB))
        assert (capabilities.max_sessions, capabilities.max_text_chars) == (1, 9)
        call.cancel()

        async def code_of(voice: dict[str, Any]) -> grpc.StatusCode:
            request = SynthesizeRequest(text="Hello", config={"voice": voice})
            call = server.stub.Synthesize(request, metadata=bearer(BOB))
            return await call.code()

        await eventually(lambda: code_of({"voice_id": "bob"}), grpc.StatusCode.OK)
        assert await code_of({}) == grpc.StatusCode.OK, "the default is a voice of this key"
        assert await code_of({"voice_id": "ada"}) == grpc.StatusCode.PERMISSION_DENIED


async def test_the_last_sessions_are_kept_for_callers_who_have_few(keys: Path) -> None:
    async with served(FakeEngine(), api_keys=keys, max_sessions=4) as server:
        for _ in range(3):
            call = server.stub.Speak(metadata=bearer(ADA))
            await call.write(speak_pb2.SpeakRequest(config=config()))
            await read_until(call, Transcript(), "session")
        code, message, _ = await failure(server.stub.Synthesize(HELLO, metadata=bearer(ADA)))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and "kept for others" in message
        await server.stub.Synthesize(HELLO, metadata=bearer(BOB))


async def test_text_per_minute_is_counted_over_all_calls_of_a_key_and_its_limit_reloaded(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "RELOAD_S", 0.02)
    replace(keys, table("ada", ADA, "max_text_chars_per_minute = 12") + table("bob", BOB))
    async with served(FakeEngine(), api_keys=keys) as server:
        stub, ada = server.stub, bearer(ADA)
        assert (await stub.GetCapabilities(GetCapabilitiesRequest(), metadata=ada)).max_text_chars_per_minute == 12
        await failure(stub.Synthesize(SynthesizeRequest(text="Hel\0lo"), metadata=ada))  # costs nothing
        code, _, _ = await failure(stub.Synthesize(SynthesizeRequest(text="a" * 13), metadata=ada))
        assert code == grpc.StatusCode.INVALID_ARGUMENT, "it would never fit"
        await stub.Synthesize(HELLO, metadata=ada)
        call, transcript = stub.Speak(metadata=ada), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("Hello", "x"))
        await call.write(say("Hello", "x"))
        await read_until(call, transcript, "done", "x")
        status = transcript.done["x"].error
        assert status.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        assert 13 < details_of(status)["RetryInfo"].retry_delay.ToTimedelta().total_seconds() <= 15
        assert details_of(status)["QuotaFailure"].violations[0].subject == "text of this key"
        await call.write(say("by", "y"))  # fits, and the session lives on
        await call.write(end("y"))
        await read_until(call, transcript, "done", "y")
        assert transcript.done["y"].stats.audio_ms > 0
        call.cancel()
        code, message, details = await failure(stub.Synthesize(HELLO, metadata=ada))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "12 characters" in message and details["RetryInfo"].retry_delay.seconds >= 10
        await stub.Synthesize(HELLO, metadata=bearer(BOB))  # others are not concerned
        replace(keys, table("ada", ADA, "max_text_chars_per_minute = 1200"))
        await eventually(lambda: stub.Synthesize(HELLO, metadata=ada).code(), grpc.StatusCode.OK)


async def test_keys_are_reloaded_without_a_restart(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "RELOAD_S", 0.02)
    async with served(FakeEngine(), api_keys=keys) as server:

        async def code_of(key: str) -> grpc.StatusCode:
            return await server.stub.GetCapabilities(GetCapabilitiesRequest(), metadata=bearer(key)).code()

        assert await code_of("new") == grpc.StatusCode.UNAUTHENTICATED
        replace(keys, table("new", "new"))
        await eventually(lambda: code_of("new"), grpc.StatusCode.OK)
        assert await code_of(ADA) == grpc.StatusCode.UNAUTHENTICATED


async def test_a_session_whose_key_is_taken_out_finishes_its_utterance_and_begins_no_other(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had a stolen key could speak on for as long as they kept the session open."""
    monkeypatch.setattr(server_module, "RELOAD_S", 0.02)
    async with served(FakeEngine(), api_keys=keys) as server:

        async def code_of(key: str) -> grpc.StatusCode:
            return await server.stub.GetCapabilities(GetCapabilitiesRequest(), metadata=bearer(key)).code()

        call, transcript = server.stub.Speak(metadata=bearer(ADA)), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("well", "under way"))
        await read_until(call, transcript, "audio", "under way")
        replace(keys, table("ada", "a new one"))  # of the same caller
        await eventually(lambda: code_of(ADA), grpc.StatusCode.UNAUTHENTICATED)
        for request in (say(" said", "under way"), end("under way"), say("More", "late")):
            await call.write(request)
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.done["under way"].reason == FINISH_REASON_COMPLETED
        error = transcript.done["late"].error
        assert error.code == grpc.StatusCode.UNAUTHENTICATED.value[0]
        assert details_of(error)["ErrorInfo"].reason == "API_KEY_UNKNOWN"


async def test_a_key_that_is_taken_out_is_refused_whatever_else_is_wrong(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the server says loudly, again and again, that the file has a fault."""
    monkeypatch.setattr(server_module, "RELOAD_S", 0.02)
    async with served(FakeEngine(), api_keys=keys, metrics_listen="127.0.0.1:0") as server:

        async def code_of(key: str) -> grpc.StatusCode:
            return await server.stub.GetCapabilities(GetCapabilitiesRequest(), metadata=bearer(key)).code()

        async def page(path: str) -> str:
            address = f"http://127.0.0.1:{server.metrics_port}/{path}"
            with await asyncio.to_thread(urllib.request.urlopen, address, timeout=60) as response:
                return str(response.read().decode())

        assert "tts_api_keys_up 1.0" in await page("metrics") and await page("ready") == "ready\n"
        replace(keys, table("bob", BOB, "max_sesions = 1") + table("eve", "eve"))  # ada is gone; bob has a typo
        await eventually(lambda: code_of(ADA), grpc.StatusCode.UNAUTHENTICATED)
        assert (await code_of(BOB), await code_of("eve")) == (grpc.StatusCode.OK, grpc.StatusCode.OK)
        assert "tts_api_keys_up 0.0" in await page("metrics")
        ready = await page("ready")
        assert ready.startswith("ready\nwarning: ") and "unknown max_sesions; did you mean max_sessions?" in ready
        replace(keys, table("bob", "another", "max_sesions = 1"))  # a changed key with a typo: the old one is refused
        await eventually(lambda: code_of(BOB), grpc.StatusCode.UNAUTHENTICATED)
        replace(keys, table("ada", ADA))
        await eventually(lambda: code_of(ADA), grpc.StatusCode.OK)
        assert "tts_api_keys_up 1.0" in await page("metrics") and await page("ready") == "ready\n"
        replace(keys, "")
        await eventually(lambda: code_of(ADA), grpc.StatusCode.UNAUTHENTICATED)
        assert "has no keys, so nobody can call" in await page("ready")


async def connects(address: str, credentials: Any) -> bool:
    opened = grpc.aio.secure_channel(address, credentials) if credentials else grpc.aio.insecure_channel(address)
    async with opened as channel:
        try:
            call = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=3)
            return await call.code() == grpc.StatusCode.OK
        except grpc.aio.AioRpcError:
            return False


async def test_tls_and_keys_together(keys: Path, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    async with served(FakeEngine(), certificates.of_client(), tls=certificates.files(), api_keys=keys) as server:
        assert (await server.stub.Synthesize(HELLO, metadata=bearer(ADA))).audio == spoken("Hello", 7)
        assert (await failure(server.stub.Synthesize(HELLO)))[0] == grpc.StatusCode.UNAUTHENTICATED
        assert not await connects(server.address, None), "plain text on a TLS port"
        assert not await connects(server.address, grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes()))


async def test_mutual_tls_takes_only_certificates_of_its_authority(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    stranger = trustme.CA().issue_cert("client")
    pems = (stranger.private_key_pem.bytes(), b"".join(pem.bytes() for pem in stranger.cert_chain_pems))
    theirs = certificates.of_client(mutual=True)
    async with served(FakeEngine(), theirs, tls=certificates.files(mutual=True)) as server:
        assert (await server.stub.Synthesize(HELLO)).audio == spoken("Hello", 7)
        assert not await connects(server.address, certificates.of_client())
        ca = certificates.authority.cert_pem.bytes()
        assert not await connects(server.address, grpc.ssl_channel_credentials(ca, *pems))


async def test_a_new_certificate_is_used_from_the_next_connection_on(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    before = certificates.of_client()
    async with served(FakeEngine(), before, tls=certificates.files()) as server:
        certificates.authority = trustme.CA()
        (tmp_path / "cert.pem").write_text("half a certi")
        assert await connects(server.address, before), "a file that cannot be used changes nothing"
        certificates.issue()
        assert await connects(server.address, certificates.of_client())
        assert not await connects(server.address, before)


def test_files_that_do_not_belong_together_are_found_at_the_start(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    (tmp_path / "key.pem").write_bytes(trustme.CA().issue_cert("other").private_key_pem.bytes())
    for files in (certificates.files(), TlsFiles(tmp_path / "missing.pem", tmp_path / "key.pem")):
        with pytest.raises(TlsError, match="pem"):
            server_credentials(files)


async def test_floods_of_metadata_are_refused() -> None:
    async with served(FakeEngine()) as server:
        for size in (10_000, 20_000, 100_000):
            code, message, _ = await failure(server.stub.Synthesize(HELLO, metadata=(("x-flood", "a" * size),)))
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "metadata" in message
        assert (await server.stub.Synthesize(HELLO, metadata=(("x-trace", "a" * 4000),))).audio


async def test_oversized_messages_are_refused_and_others_go_on() -> None:
    huge, beyond = "a" * (9 * 1024 * 1024), "a" * (17 * 1024 * 1024)
    async with served(FakeEngine()) as server:
        code, _, details = await failure(server.stub.Synthesize(SynthesizeRequest(text=huge)))
        assert (code, details["ErrorInfo"].reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
        assert details["ErrorInfo"].metadata["limit_bytes"] == str(8 * 1024 * 1024)
        other, transcript = server.stub.Speak(), Transcript()
        await other.write(speak_pb2.SpeakRequest(config=config()))
        for call in (
            server.stub.Synthesize(SynthesizeRequest(text=beyond)),  # which gRPC itself refuses
            server.stub.SynthesizeStream(SynthesizeStreamRequest(text=huge)),
        ):
            assert (await failure(call))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        with suppress(grpc.aio.AioRpcError):  # the call may end before all of it is written
            await call.write(say(huge))
        assert (await failure(call))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        await other.write(say("fine"))
        await read_until(other, transcript, "audio")
        other.cancel()
        await eventually(lambda: active(server), 0)


async def test_connections_without_end_are_refused_and_those_that_are_there_go_on() -> None:
    async with served(FakeEngine(), max_sessions=1) as server:
        host, _, port = server.address.rpartition(":")
        async with AsyncExitStack() as connections:
            for _ in range(2 + SPARE_CALLS - 1):  # beside the channel's own
                await connections.enter_async_context(raw_connection(server.address))
            reader, writer = await asyncio.open_connection(host, int(port))
            assert await reader.read() == b"", "closed at once"
            writer.close()
            await writer.wait_closed()
            assert (await server.stub.Synthesize(HELLO)).audio

        async def connects() -> bool:
            with suppress(ConnectionError):
                async with raw_connection(server.address):
                    return True
            return False

        await eventually(connects, True)


async def active(server: Served) -> int:
    return int((await server.stub.GetCapabilities(GetCapabilitiesRequest())).active_sessions)


async def test_calls_that_send_nothing_are_given_up() -> None:
    async with served(FakeEngine(), request_timeout_s=0.15) as server:
        silent = server.stub.Speak()
        code, message, details = await failure(silent)
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        assert "0.15 s" in message
        assert details["ErrorInfo"].reason == "CONFIG_REQUIRED"
        # A unary call whose request never comes, which stubs cannot make.
        for name in ("Synthesize", "SynthesizeStream"):
            raw = server.channel.stream_stream(f"/sonorant.tts.v1.TextToSpeechService/{name}")()
            code, message, _ = await failure(raw)
            assert (code, "0.15 s" in message) == (grpc.StatusCode.INVALID_ARGUMENT, True)
            empty = server.channel.stream_stream(f"/sonorant.tts.v1.TextToSpeechService/{name}")()
            await empty.done_writing()
            assert "without a request" in (await failure(empty))[1]
        assert await active(server) == 0
        patient = await speak(server.stub, [config(), say("still served")])
        assert patient.pcm


@pytest.mark.rare
@pytest.mark.slow
def test_the_server_does_not_start_with_files_it_cannot_use(tmp_path: Path) -> None:
    for arguments, hint in (
        (["--api-keys", "missing.toml"], "missing.toml"),
        (["--tls-certificate", "a.pem", "--tls-key", "b.pem"], "a.pem"),
        (["--tls-key", "b.pem"], "--tls-certificate"),
        (["--open-services", "everything"], "reflection"),
    ):
        code, log = refused(tmp_path / "log", *arguments)
        assert code != 0
        assert hint in log
