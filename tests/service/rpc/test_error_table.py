"""What goes wrong and what callers are told, condition by condition, through a real channel.

One case per condition of the contract: the status, the reason in ErrorInfo, and the other details with what they say.
Conditions that concern one utterance are told in its `done`, and the session lives on.
"""

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status

from sonorant.engine import EngineState, FinishReason
from sonorant.service.calls import stalled
from sonorant.service.pacing.outbox import Outbox
from sonorant.service.session.session import MAX_OPEN_UTTERANCES
from sonorant.service.status import DOMAIN
from sonorant.service.utterance.segments import MAX_PENDING_FLUSHES
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest, SynthesizeStreamRequest
from sonorant.tts.v1.voice_service_pb2 import GetVoiceRequest
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import (
    Served,
    Transcript,
    cancel,
    config,
    details_of,
    end,
    eventually,
    failure,
    flush,
    read_all,
    read_until,
    say,
    served,
    speak,
)

Code = grpc.StatusCode
Told = tuple[grpc.StatusCode, str, dict[str, Any]]
Provoke = Callable[[Served, FakeEngine], Awaitable[Told]]
KEY = "key-of-ada"


@dataclass(frozen=True)
class Case:
    condition: str
    provoke: Provoke
    code: grpc.StatusCode
    reason: str
    details: dict[str, Callable[[Any], bool]] = field(default_factory=dict)  # type of a detail -> what it says
    says: str = ""  # in the message
    settings: dict[str, Any] = field(default_factory=dict)  # of the server


def clip(text: str = "Hello", **config: Any) -> Provoke:
    async def provoke(server: Served, engine: FakeEngine) -> Told:
        return await failure(server.stub.Synthesize(SynthesizeRequest(text=text, config=config)))

    return provoke


def streamed(text: str = "Hello", **config: Any) -> Provoke:
    async def provoke(server: Served, engine: FakeEngine) -> Told:
        return await failure(server.stub.SynthesizeStream(SynthesizeStreamRequest(text=text, config=config)))

    return provoke


def session(*requests: speak_pb2.SpeakRequest | speak_pb2.SpeakConfig) -> Provoke:
    """A session that ends with a status."""

    async def provoke(server: Served, engine: FakeEngine) -> Told:
        return await failure(await written(server, *requests))

    return provoke


def utterance(*requests: speak_pb2.SpeakRequest) -> Provoke:
    """The utterance "x" fails, and the one after it does not."""

    async def provoke(server: Served, engine: FakeEngine) -> Told:
        transcript = await speak(
            server.stub, [config(sampling={"seed": 7}), *requests, say("ok", "after"), end("after")]
        )
        assert transcript.pcm["after"] == spoken("ok", 7)
        return in_band(transcript.done["x"])

    return provoke


def in_band(done: synthesis_pb2.UtteranceDone) -> Told:
    assert done.reason == synthesis_pb2.FINISH_REASON_FAILED
    code = next(code for code in Code if code.value[0] == done.error.code)
    return code, done.error.message, details_of(done.error)


async def written(server: Served, *requests: speak_pb2.SpeakRequest | speak_pb2.SpeakConfig) -> Any:
    call = server.stub.Speak()
    for request in requests:
        is_config = isinstance(request, speak_pb2.SpeakConfig)
        await call.write(speak_pb2.SpeakRequest(config=request) if is_config else request)
    return call


def with_key(**metadata: str) -> Provoke:
    async def provoke(server: Served, engine: FakeEngine) -> Told:
        request = SynthesizeRequest(text="Hello", config={"voice": {"voice_id": "bob"}})
        return await failure(server.stub.Synthesize(request, metadata=tuple(metadata.items())))

    return provoke


async def a_voice_that_is_not_there(server: Served, engine: FakeEngine) -> Told:
    return await failure(server.voices.GetVoice(GetVoiceRequest(voice_id="eve")))


async def one_session_too_many(server: Served, engine: FakeEngine) -> Told:
    engine.hold()
    call = await written(server, config())
    await call.read()
    told = await failure(server.stub.Synthesize(SynthesizeRequest(text="Hello")))
    call.cancel()
    return told


async def one_stream_too_many(server: Served, engine: FakeEngine) -> Told:
    engine.max_streams = 0
    return await failure(server.stub.Synthesize(SynthesizeRequest(text="Hello")))


async def one_utterance_too_many(server: Served, engine: FakeEngine) -> Told:
    engine.hold()
    call = await written(server, config(), *[say("a", f"id{n}") for n in range(MAX_OPEN_UTTERANCES)], say("a", "x"))
    transcript = Transcript()
    await read_until(call, transcript, "done")
    call.cancel()
    return in_band(transcript.done["x"])


async def one_flush_too_many(server: Served, engine: FakeEngine) -> Told:
    engine.hold()  # or some were spoken before the last had come
    flushes = [flush(number, "x") for number in range(MAX_PENDING_FLUSHES + 1)]
    call, transcript = await written(server, config(), say("a", "x"), *flushes), Transcript()
    await read_until(call, transcript, "done")
    call.cancel()
    return in_band(transcript.done["x"])


async def a_client_that_sends_without_reading(server: Served, engine: FakeEngine) -> Told:
    """In a thread: of an asynchronous call that ends while it is written to, gRPC loses the status."""
    is_full, close = threading.Event(), Outbox.close

    def closed(outbox: Outbox[Any], error: BaseException | None = None) -> None:
        close(outbox, error)
        is_full.set()

    def flood() -> Told:
        options = (("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0))
        with grpc.insecure_channel(server.address, options) as channel:
            requests = [speak_pb2.SpeakRequest(config=config()), *[cancel("nobody" * 10) for _ in range(5000)]]
            call = type(server.stub)(channel).Speak(iter(requests))
            is_full.wait(15)
            with pytest.raises(grpc.RpcError):
                for _ in call:
                    pass
            return call.code(), call.details(), details_of(rpc_status.from_call(call))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outbox, "close", closed)
        return await asyncio.to_thread(flood)


async def a_new_call_while_draining(server: Served, engine: FakeEngine) -> Told:
    call, transcript = await written(server, config()), Transcript()
    await call.write(say("open"))
    await read_until(call, transcript, "audio")
    server.drain.set()
    await read_until(call, transcript, "go_away")
    told = await failure(server.stub.Synthesize(SynthesizeRequest(text="Hello")))
    call.cancel()
    return told


async def a_new_utterance_while_draining(server: Served, engine: FakeEngine) -> Told:
    call, transcript = await written(server, config()), Transcript()
    await call.write(say("open", "u"))
    await read_until(call, transcript, "audio")
    server.drain.set()
    await read_until(call, transcript, "go_away")
    await call.write(say("new", "x"))
    await call.done_writing()
    await read_all(call, transcript)
    assert transcript.done["u"].reason == synthesis_pb2.FINISH_REASON_COMPLETED
    return in_band(transcript.done["x"])


async def workers_that_load(server: Served, engine: FakeEngine) -> Told:
    engine.enter(EngineState.STARTING)
    return await failure(server.stub.Synthesize(SynthesizeRequest(text="Hello")))


async def workers_that_die(server: Served, engine: FakeEngine) -> Told:
    call = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="a" * 200))
    await call.read()
    engine.enter(EngineState.RESTARTING)
    return await failure(call)


async def workers_that_die_in_a_session(server: Served, engine: FakeEngine) -> Told:
    call, transcript = await written(server, config(), say("a" * 500, "x")), Transcript()
    await read_until(call, transcript, "audio")
    engine.enter(EngineState.RESTARTING)
    await read_until(call, transcript, "done")
    call.cancel()
    return in_band(transcript.done["x"])


async def a_stream_that_breaks(server: Served, engine: FakeEngine) -> Told:
    call = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="a" * 200))
    await call.read()
    next(iter(engine.live.values())).end(FinishReason.FAILED, "logits are not finite")
    return await failure(call)


async def a_stream_that_breaks_in_a_session(server: Served, engine: FakeEngine) -> Told:
    call, transcript = await written(server, config(), say("a" * 500, "x")), Transcript()
    await read_until(call, transcript, "audio")
    next(iter(engine.live.values())).end(FinishReason.FAILED, "logits are not finite")
    await read_until(call, transcript, "done")
    call.cancel()
    return in_band(transcript.done["x"])


async def no_message_at_all(server: Served, engine: FakeEngine) -> Told:
    return await failure(server.stub.Speak())


async def bytes_that_are_no_message(server: Served, engine: FakeEngine) -> Told:
    return await failure(
        server.channel.unary_unary("/sonorant.tts.v1.TextToSpeechService/Synthesize")(b"\x12\x02\xc3\x28")
    )


def violates(path: str) -> dict[str, Callable[[Any], bool]]:
    return {"BadRequest": lambda detail: [v.field for v in detail.field_violations] == [path]}


def retry(milliseconds: int) -> Callable[[Any], bool]:
    return lambda detail: bool(detail.retry_delay.ToMilliseconds() == milliseconds)


def quota(subject: str) -> dict[str, Callable[[Any], bool]]:
    return {"QuotaFailure": lambda detail: detail.violations[0].subject == subject, "RetryInfo": retry(500)}


def tells(**metadata: str) -> dict[str, Callable[[Any], bool]]:
    return {"ErrorInfo": lambda detail: dict(detail.metadata) == metadata}


NEEDS_CONFIG = {"PreconditionFailure": lambda detail: detail.violations[0].type == "CONFIG_REQUIRED"}
NO_EVE = {"ResourceInfo": lambda detail: detail.resource_name == "eve"}
LATER = {"RetryInfo": retry(2000)}
EVE = {"voice_id": "eve"}
WRONG, UNSERVED, BUSY, AWAY = Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED, Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE
RATE, SPEED = "config.audio.sample_rate_hz", "config.speed"
SHORT = {"max_text_chars": 9}
LONG = tells(chars="13", limit_chars="9")

CASES = [
    Case("first message is not config", session(say("a")), Code.FAILED_PRECONDITION, "CONFIG_REQUIRED", NEEDS_CONFIG),
    Case("first message is empty", session(speak_pb2.SpeakRequest()), Code.FAILED_PRECONDITION, "CONFIG_REQUIRED"),
    Case("no message", no_message_at_all, Code.FAILED_PRECONDITION, "CONFIG_REQUIRED", NEEDS_CONFIG, "within 0.2 s",
         settings={"request_timeout_s": 0.2}),
    Case("no payload", session(config(), speak_pb2.SpeakRequest()), WRONG, "INVALID_FIELD", violates("payload")),
    Case("not a message", bytes_that_are_no_message, WRONG, "MALFORMED_MESSAGE", says="UTF-8"),
    Case("sample rate", clip(audio={"sample_rate_hz": 32_000}), WRONG, "INVALID_FIELD", violates(RATE), "8000"),
    Case("sample rate of a session", session(config(audio={"sample_rate_hz": 1})), WRONG, "INVALID_FIELD",
         violates("config.synthesis.audio.sample_rate_hz")),
    Case("later config", session(config(), config(speed=9)), WRONG, "INVALID_FIELD",
         violates("config.synthesis.speed")),
    Case("encoding", clip(audio={"encoding": 99}), WRONG, "INVALID_FIELD", violates("config.audio.encoding"), "99"),
    Case("encoding for whole clips", streamed(audio={"encoding": 7}), WRONG, "INVALID_FIELD"),
    Case("frame duration", clip(audio={"frame_duration_ms": 7}), WRONG, "INVALID_FIELD"),
    Case("speed", clip(speed=2.5), WRONG, "INVALID_FIELD", violates(SPEED), "0.5"),
    Case("gain", clip(volume_gain_db=17), WRONG, "INVALID_FIELD", violates("config.volume_gain_db")),
    Case("sampling", clip(sampling={"temperature": 0}), WRONG, "INVALID_FIELD",
         violates("config.sampling.temperature")),
    Case("language", clip(language="x-klingon"), WRONG, "INVALID_FIELD", violates("config.language"), "english"),
    Case("instructions", clip(instructions="a" * 2000), WRONG, "TEXT_TOO_LONG",
         tells(chars="2000", limit_chars="1024")),
    Case("utterance id", session(config(), say("a", "x" * 65)), WRONG, "INVALID_FIELD", violates("utterance_id"), "64"),
    Case("nothing to say", clip(" ?! "), WRONG, "NO_SPEAKABLE_TEXT", violates("text")),
    Case("nothing to say, streamed", streamed(""), WRONG, "NO_SPEAKABLE_TEXT", violates("text")),
    Case("control character", clip("a\x07b"), WRONG, "CONTROL_CHARACTER", violates("text"), "U+0007 at position 1"),
    Case("control character in a session", utterance(say("a\x07", "x")), WRONG, "CONTROL_CHARACTER", violates("text")),
    Case("text too long", clip("Hello, world!"), WRONG, "TEXT_TOO_LONG", LONG, "limit of 9", SHORT),
    Case("text too long in a session", utterance(say("Hello, ", "x"), say("world!", "x")), WRONG, "TEXT_TOO_LONG", LONG,
         settings=SHORT),
    Case("voice", clip(voice=EVE), Code.NOT_FOUND, "VOICE_NOT_FOUND", NO_EVE, "config.voice.voice_id"),
    Case("voice of a session", session(config(voice=EVE)), Code.NOT_FOUND, "VOICE_NOT_FOUND", NO_EVE),
    Case("voice to look up", a_voice_that_is_not_there, Code.NOT_FOUND, "VOICE_NOT_FOUND", NO_EVE, "ListVoices"),
    Case("no key", with_key(), Code.UNAUTHENTICATED, "API_KEY_MISSING", says="authorization"),
    Case("unknown key", with_key(authorization="Bearer x"), Code.UNAUTHENTICATED, "API_KEY_UNKNOWN"),
    Case("key is not for the voice", with_key(authorization=f"Bearer {KEY}"), Code.PERMISSION_DENIED,
         "VOICE_NOT_ALLOWED"),
    Case("sessions", one_session_too_many, BUSY, "LIMIT_REACHED", quota("sessions"), settings={"max_sessions": 1}),
    Case("streams", one_stream_too_many, BUSY, "ENGINE_OVERLOADED", quota("streams")),
    Case("utterances", one_utterance_too_many, BUSY, "LIMIT_REACHED", quota("utterances")),
    Case("flushes", one_flush_too_many, BUSY, "LIMIT_REACHED", quota("flushes")),
    Case("responses", a_client_that_sends_without_reading, BUSY, "LIMIT_REACHED", quota("responses")),
    Case("draining", a_new_call_while_draining, AWAY, "DRAINING", LATER),
    Case("draining, in a session", a_new_utterance_while_draining, AWAY, "DRAINING", LATER, "new session"),
    Case("workers load", workers_that_load, AWAY, "ENGINE_UNAVAILABLE", LATER),
    Case("workers die", workers_that_die, AWAY, "ENGINE_UNAVAILABLE", LATER),
    Case("workers die, in a session", workers_that_die_in_a_session, AWAY, "ENGINE_UNAVAILABLE", LATER),
    Case("stream breaks", a_stream_that_breaks, Code.INTERNAL, "STREAM_FAILED", says="not finite"),
    Case("stream breaks, in a session", a_stream_that_breaks_in_a_session, Code.INTERNAL, "STREAM_FAILED"),
    Case("too long for one response", clip("a" * 600), Code.OUT_OF_RANGE, "AUDIO_TOO_LONG",
         tells(limit_bytes="4128768", use_instead="SynthesizeStream"), "SynthesizeStream"),
    Case("not of this checkpoint", clip(voice={"design": "deep"}), UNSERVED, "CHECKPOINT_LACKS_DESIGN",
         violates("config.voice.design")),
    Case("not served: normalization", clip(normalize_text=True), UNSERVED, "NOT_SERVED_YET"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.condition)
async def test_each_condition_has_its_status_and_details(case: Case, tmp_path: Path) -> None:
    settings = dict(case.settings)
    if "key" in case.condition:
        settings["api_keys"] = tmp_path / "keys.toml"
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        settings["api_keys"].write_text(f'[ada]\nsha256 = "{digest}"\nvoices = ["ada"]\n')
    engine = FakeEngine()
    async with served(engine, **settings) as server:
        code, message, details = await asyncio.wait_for(case.provoke(server, engine), 60)
        assert (code, details["ErrorInfo"].reason) == (case.code, case.reason), message
        assert details["ErrorInfo"].domain == DOMAIN
        assert details["RequestInfo"].request_id
        assert case.says in message and len(message) < 300
        for kind, holds in case.details.items():
            assert holds(details[kind]), details[kind]
        await eventually(lambda: engine.num_streams, 0)


async def test_who_takes_no_audio_for_long_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalled, "LIMIT_S", 0.3)
    monkeypatch.setattr(stalled, "LOOK_S", 0.05)
    engine = FakeEngine()
    async with served(engine) as server:
        options = (("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0))
        async with grpc.aio.insecure_channel(server.address, options=options) as channel:
            call = type(server.stub)(channel).SynthesizeStream(SynthesizeStreamRequest(text="a" * 900))
            await call.read()
            await eventually(lambda: engine.num_streams, 0)
            code, message, details = await failure(call)
    assert (code, details["ErrorInfo"].reason) == (Code.RESOURCE_EXHAUSTED, "SLOW_READER")
    assert "read faster" in message


async def test_a_deadline_ends_everything() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        engine.hold()
        for call in (
            server.stub.Synthesize(SynthesizeRequest(text="Hello"), timeout=0.2),
            server.stub.SynthesizeStream(SynthesizeStreamRequest(text="Hello"), timeout=0.2),
        ):
            assert (await failure(call))[0] == Code.DEADLINE_EXCEEDED
        call = server.stub.Speak(timeout=0.3)
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("Hello"))
        assert (await failure(call))[0] == Code.DEADLINE_EXCEEDED
        await eventually(lambda: engine.num_streams, 0)


async def test_who_cancels_is_told_cancelled() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        engine.hold()
        stream = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="Hello"))
        await stream.read()
        speaking = await written(server, config(), say("Hello"))
        await speaking.read()
        for call in (stream, speaking):
            call.cancel()
            assert await call.code() == Code.CANCELLED
        await eventually(lambda: engine.num_streams, 0)


async def test_what_is_no_error() -> None:
    async with served(FakeEngine()) as server:
        response = await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"max_audio_ms": 200}))
        assert response.reason == synthesis_pb2.FINISH_REASON_MAX_AUDIO
        requests = [config(sampling={"seed": 7}), say("ab", "x"), config(speed=2), say("cd", "x"), say("?!", "y")]
        transcript = await speak(server.stub, requests)
        assert transcript.pcm["x"] == spoken("abcd", 7), "a config between the text of an utterance is for the next"
        assert transcript.done["y"].reason == synthesis_pb2.FINISH_REASON_COMPLETED
        assert transcript.warnings == [("y", "NO_SPEAKABLE_TEXT")]
