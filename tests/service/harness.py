"""The service's own server around an engine, on a free port, and verbs to talk to it with bare stubs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig, EngineState
from sonorant.hosting.tls import TlsFiles
from sonorant.service.early_port import EarlyPort
from sonorant.service.listening import accepting
from sonorant.service.server import serve
from sonorant.service.settings import ServiceConfig
from sonorant.tts.v1 import speak_pb2, synthesis_pb2, text_to_speech_service_pb2_grpc, voice_service_pb2_grpc
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest

Stub = text_to_speech_service_pb2_grpc.TextToSpeechServiceStub


@dataclass
class Served:
    """A running server and a channel to it."""

    address: str
    channel: grpc.aio.Channel
    drain: asyncio.Event
    exit_code: "asyncio.Task[int]"
    metrics_port: int
    admin_port: int

    @property
    def stub(self) -> Any:
        return Stub(self.channel)

    @property
    def voices(self) -> Any:
        return voice_service_pb2_grpc.VoiceServiceStub(self.channel)

    async def health(self, service: str = "") -> int:
        stub = health_pb2_grpc.HealthStub(self.channel)
        return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status

    async def wait_for_health(self, status: int, timeout_s: float = 60.0) -> None:
        await eventually(self.health, status, timeout_s)


def server_config(tls: TlsFiles | None = None, **settings: Any) -> ServiceConfig:
    if tls is not None:
        settings |= {"tls_certificate": tls.certificate, "tls_key": tls.key, "tls_client_ca": tls.client_ca}
    # For a number of sessions that follows from the machine there must be workers.
    settings = {"max_sessions": 1000, "listen": "127.0.0.1:0", **settings}
    return ServiceConfig((EngineConfig(model=BUILTIN_VOICE_DIR),), **settings)


@asynccontextmanager
async def served(
    engine: Any, credentials: Any = None, early: EarlyPort | None = None, acceptors: int = 16, **settings: Any
) -> AsyncIterator[Served]:
    """`credentials`: of the channel, for a server with TLS. `early`: closes when this server listens. `acceptors`: as
    many as in a real server take a third of a start's processor time, and only a flood needs them."""
    accepting.NUM_ACCEPTORS = acceptors
    ports: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()

    def announce(event: str, **more: Any) -> None:
        if event == "listening":
            ports.set_result(more)

    drain = asyncio.Event()
    running = asyncio.create_task(serve(server_config(**settings), engine.started, drain, announce))
    await asyncio.wait({ports, running}, return_when=asyncio.FIRST_COMPLETED)
    if not ports.done():
        await running
    told = ports.result()
    if early is not None:
        await early.close()
    address = f"127.0.0.1:{told['port']}"
    opened = grpc.aio.secure_channel(address, credentials) if credentials else grpc.aio.insecure_channel(address)
    async with opened as channel:
        here = Served(address, channel, drain, running, told.get("metrics_port", 0), told.get("admin_port", 0))
        try:
            await asyncio.wait_for(channel.channel_ready(), 60)
            if engine.state is EngineState.READY:
                await here.wait_for_health(health_pb2.HealthCheckResponse.SERVING)
            yield here
        finally:
            drain.set()
            running.cancel()
            await asyncio.wait([running])


async def eventually(observe: Callable[[], Any], expected: object, timeout_s: float = 60.0) -> None:
    """Wait until what is observed, by a function or a coroutine function, is what is expected."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while True:
        seen = observe()
        if asyncio.iscoroutine(seen):
            seen = await seen
        if seen == expected:
            return
        assert loop.time() < deadline_s, f"{seen!r} is still not {expected!r}"
        await asyncio.sleep(0.005)


async def stands_still(server: Served, engine: Any) -> None:
    """Wait until the engine makes nothing more while the server answers others."""
    before = -1
    while before != engine.frames_made:
        before = engine.frames_made
        for _ in range(5):
            await server.stub.GetCapabilities(GetCapabilitiesRequest())


def config(**synthesis: Any) -> speak_pb2.SpeakConfig:
    """A SpeakConfig whose first words are unpaced, for speed."""
    return speak_pb2.SpeakConfig(synthesis=synthesis_pb2.SynthesisConfig(**synthesis), max_lead_ms=0)


def say(text: str, utterance_id: str = "") -> speak_pb2.SpeakRequest:
    return speak_pb2.SpeakRequest(text=text, utterance_id=utterance_id)


def flush(flush_id: int, utterance_id: str = "") -> speak_pb2.SpeakRequest:
    return speak_pb2.SpeakRequest(flush={"flush_id": flush_id}, utterance_id=utterance_id)


def end(utterance_id: str = "") -> speak_pb2.SpeakRequest:
    return speak_pb2.SpeakRequest(end={}, utterance_id=utterance_id)


def cancel(utterance_id: str = "", **fields: int) -> speak_pb2.SpeakRequest:
    return speak_pb2.SpeakRequest(cancel=fields, utterance_id=utterance_id)


@dataclass
class Transcript:
    """What came back from a session, checked for the rules that always hold."""

    kinds: list[tuple[str, str]] = field(default_factory=list)  # (utterance id, kind), runs of audio as one
    pcm: dict[str, bytes] = field(default_factory=dict)
    done: dict[str, synthesis_pb2.UtteranceDone] = field(default_factory=dict)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    marks: dict[str, list[synthesis_pb2.Mark]] = field(default_factory=dict)
    responses: list[speak_pb2.SpeakResponse] = field(default_factory=list)

    def add(self, response: speak_pb2.SpeakResponse) -> str:
        kind = response.WhichOneof("payload")
        utterance_id = response.utterance_id
        assert not self.responses or kind != "session", "session comes once"
        assert self.responses or kind == "session", "session comes first"
        if kind != "warning":
            assert utterance_id not in self.done, f"{kind} after done of {utterance_id}"
        if kind == "audio":
            assert ("started") in [k for u, k in self.kinds if u == utterance_id]
            position = len(self.pcm.get(utterance_id, b"")) // 2
            assert response.audio.start_ms == position * 1000 // 24_000
            assert len(response.audio.data) == response.audio.num_samples * 2
            self.pcm[utterance_id] = self.pcm.get(utterance_id, b"") + response.audio.data
        elif kind == "marks":
            told = self.marks.setdefault(utterance_id, [])
            for mark in response.marks.marks:
                assert mark.start_ms >= len(self.pcm.get(utterance_id, b"")) // 48 - 1, "before the audio it covers"
                assert not told or (told[-1].text_end <= mark.text_start and told[-1].end_ms <= mark.start_ms)
                told.append(mark)
        elif kind == "done":
            self.done[utterance_id] = response.done
        elif kind == "warning":
            self.warnings.append((utterance_id, response.warning.code))
        if kind != "audio" or self.kinds[-1] != (utterance_id, kind):
            self.kinds.append((utterance_id, kind))
        self.responses.append(response)
        return kind


def codes_told(responses: Iterable[speak_pb2.SpeakResponse]) -> bytes:
    """Of all segments, as a client keeps them."""
    kept: dict[int, bytearray] = {}
    for told in (told for response in responses for told in response.audio.codes):
        codes = kept.setdefault(told.segment, bytearray())
        assert told.offset <= len(codes), "none are left out"
        codes[told.offset :] = told.codes
    return b"".join(codes for _, codes in sorted(kept.items()))


async def speak(stub: Any, requests: Iterable[speak_pb2.SpeakRequest | speak_pb2.SpeakConfig]) -> Transcript:
    """A whole session: everything sent, half-closed, everything read."""
    call = stub.Speak()
    for request in requests:
        await call.write(
            speak_pb2.SpeakRequest(config=request) if isinstance(request, speak_pb2.SpeakConfig) else request
        )
    await call.done_writing()
    return await read_all(call)


async def read_all(call: Any, transcript: Transcript | None = None) -> Transcript:
    transcript = transcript or Transcript()
    while (response := await call.read()) is not grpc.aio.EOF:
        transcript.add(response)
    assert await call.code() == grpc.StatusCode.OK, await call.details()
    return transcript


async def read_until(call: Any, transcript: Transcript, kind: str, utterance_id: str | None = None) -> None:
    """Read up to and including the first response of a kind."""
    async with asyncio.timeout(60):
        while (response := await call.read()) is not grpc.aio.EOF:
            found = transcript.add(response)
            if found == kind and utterance_id in (None, response.utterance_id):
                return
    raise AssertionError(f"the session ended before {kind}: {transcript.kinds} {await call.details()}")


def assert_same_audio(one: bytes, other: bytes) -> None:
    """Equal but for the rounding of float sums, whose order differs with how frames were grouped into decoder calls."""
    a, b = (np.frombuffer(pcm, np.int16).astype(np.int32) for pcm in (one, other))
    assert len(a) == len(b)
    assert abs(a - b).max() <= 1e-4 * 2**15


async def failure(call: Any) -> tuple[grpc.StatusCode, str, dict[str, Any]]:
    """Status, message and details by type of a call that fails; for any kind of call."""
    try:
        if hasattr(call, "read"):
            while await call.read() is not grpc.aio.EOF:
                pass
            assert await call.code() != grpc.StatusCode.OK, "the call succeeded"
            raise grpc.aio.AioRpcError(
                await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
            )
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or "", details_of(rpc_status.from_call(_Call(error)))
    raise AssertionError("the call succeeded")


def details_of(status: Any) -> dict[str, Any]:
    details = {}
    for packed in status.details if status else ():
        detail = getattr(error_details_pb2, packed.type_url.rpartition(".")[2])()
        packed.Unpack(detail)
        details[type(detail).__name__] = detail
    return details


class _Call:
    """What `rpc_status.from_call` wants, of an error."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code = error.code
        self.details = error.details
        self.trailing_metadata = error.trailing_metadata
