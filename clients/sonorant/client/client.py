"""The client library: one `SpeechClient` per server, any number of RPCs on it. Knows only the proto.

    async with SpeechClient("127.0.0.1:50051") as client:
        async with client.speak(synthesis_config(language="english")) as session:
            await session.send_text("Hello, world.")
            await session.finish()
            async for event in session:
                if isinstance(event.payload, AudioChunk):
                    play(event.payload.data)

Messages are those of the proto, and the comments there are their reference. Make all calls of a process on one event
loop, as grpc.aio does not support several. Cancelling a task in the middle of a read or write cancels the whole RPC.
"""

import asyncio
import copy
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sonorant.client import clips
from sonorant.client.access import Access
from sonorant.client.clip import Clip, Saved
from sonorant.client.configs import audio_format, utterance_config
from sonorant.client.dictionary_methods import DictionaryMethods
from sonorant.client.errors import ServerUnavailable, from_rpc_error, from_status, is_starting
from sonorant.client.events import Payload
from sonorant.client.file_formats import encoding_for
from sonorant.client.listening import audio_out
from sonorant.client.speaking.journal import Journal
from sonorant.client.speaking.session import Session
from sonorant.client.transport.call_opener import CallOpener
from sonorant.client.transport.connections import Connections
from sonorant.client.transport.retries import Retry, call_with_retries, time_limit
from sonorant.client.transport.silence_limits import max_silence_for_lead_ms
from sonorant.client.transport.trace import Trace
from sonorant.client.voice_methods import VoiceMethods
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.dictionary_service_pb2_grpc import DictionaryServiceStub
from sonorant.tts.v1.explain_pb2 import ExplainRequest, ExplainResponse
from sonorant.tts.v1.speak_pb2 import SpeakConfig, TextPolicy
from sonorant.tts.v1.synthesis_pb2 import (
    FINISH_REASON_FAILED,
    TIMESTAMP_MODE_WORD,
    Scheduling,
    SynthesisConfig,
    UtteranceDone,
    UtteranceStarted,
)
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    DecodeConfig,
    DecodeRequest,
    DecodeStarted,
    GetCapabilitiesRequest,
    GetCapabilitiesResponse,
    GetUsageRequest,
    GetUsageResponse,
    SynthesizeRequest,
    SynthesizeStreamRequest,
)
from sonorant.tts.v1.voice_service_pb2_grpc import VoiceServiceStub

DEFAULT_TARGET = "127.0.0.1:50051"


class SpeechClient(VoiceMethods, DictionaryMethods):
    """A connection of its own to a server. Every method raises the errors of `sonorant.client.errors`."""

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        access: Access | None = None,
        *,
        timeout_s: float | None = None,
        retry: Retry = Retry(),  # noqa: B008
    ) -> None:
        """`access`: TLS and the API key; None = as the environment says, see `Access.from_environment`. `timeout_s`
        and `retry` hold for every call; see `limited`."""
        self.target = target
        self._timeout_s, self._retry = timeout_s, retry
        access = access or Access.from_environment()
        access.check()  # now, as the channel is only opened by the first call
        self._connections = Connections(lambda second: access.channel(target, second=second))

    @property
    def _voices(self) -> Any:
        return VoiceServiceStub(self._connections.first_channel)

    @property
    def _dictionaries(self) -> Any:
        return DictionaryServiceStub(self._connections.first_channel)

    @property
    def _health(self) -> Any:
        return health_pb2_grpc.HealthStub(self._connections.first_channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls that are still running are cancelled."""
        await self._connections.close()

    def limited(self, *, timeout_s: float | None = None, retry: Retry | None = None) -> Self:
        """Return this client with other limits, for one call or for many: `client.limited(timeout_s=2).voices()`. Both
        use the same connections.

        `timeout_s`: a call raises TimedOut if it takes longer, with all its tries; of a session, only its beginning
        counts. `retry`: when a call is made again, and how long a session that has lost its server goes on trying.
        """
        other = copy.copy(self)
        other._timeout_s, other._retry = timeout_s, retry or self._retry
        return other

    def speak(
        self,
        config: SynthesisConfig | None = None,
        *,
        timestamps: bool = False,
        max_lead_ms: int | None = None,
        idle_timeout_ms: int | None = None,
        resume: bool = True,
        trace: Trace | None = None,
        text: str = "",
        end: bool = False,
        scheduling: Scheduling | None = None,
        text_policy: TextPolicy | None = None,
    ) -> Session:
        """Open a session: text goes in while audio comes out. Use as `async with client.speak(...) as session`.

        `text`: the first text, if it is known already. It is sent with the call, so that audio comes a round trip
        earlier than with `Session.send_text`, which waits for the server's answer. `end`: `text` is the whole
        utterance. `timestamps`: Marks come, too: when each word is heard, as exactly as the checkpoint can tell.
        `resume`: utterances survive the loss of a server, see `Session`. `scheduling`: made by `scheduling`; if an
        utterance has to wait, `Queued` comes before it. `text_policy`: made by `text_policy`. `Session.configure`
        changes `config`, `timestamps`, `scheduling` and `text_policy` for later utterances.
        """
        first = SpeakConfig(
            max_lead_ms=max_lead_ms,
            idle_timeout_ms=idle_timeout_ms,
            resumable=resume,
            max_silence_ms=max_silence_for_lead_ms(max_lead_ms) if resume else None,
            pack_codes=resume,
        )
        first.MergeFrom(utterance_config(config, timestamps=timestamps, scheduling=scheduling, text_policy=text_policy))
        journal = Journal(first)
        opener = CallOpener(self.target, first, trace, journal.opening("", text, end=end))
        session = Session(self._connections, opener, journal)
        session.timeout_s, session.retry = self._timeout_s, self._retry
        return session

    async def stream(
        self,
        text: str,
        config: SynthesisConfig | None = None,
        *,
        max_lead_ms: int | None = None,
        timestamps: bool = False,
        scheduling: Scheduling | None = None,
    ) -> AsyncGenerator[Payload, None]:
        """Stream the audio of a whole text as it is generated: started, warnings, audio chunks and, with `timestamps`,
        marks; done. The stream survives the loss of a server, as a session does."""
        request = SynthesizeStreamRequest(config=config, text=text, max_lead_ms=max_lead_ms, scheduling=scheduling)
        if timestamps:
            request.timestamps = TIMESTAMP_MODE_WORD
        loop = asyncio.get_running_loop()
        until_s = None if self._timeout_s is None else loop.time() + self._timeout_s
        async with aclosing(clips.stream(self._connections, self.target, request, self._retry)) as payloads:
            while True:
                async with time_limit(self._timeout_s, self.target, until_s):  # not while the caller has the payload
                    payload = await anext(payloads, None)
                if payload is None:
                    return
                yield payload

    async def stream_to_file(
        self,
        text: str,
        path: str | Path,
        config: SynthesisConfig | None = None,
        *,
        timestamps: bool = False,
        scheduling: Scheduling | None = None,
        on: Mapping[type, Callable[[Any], object]] = MappingProxyType({}),
    ) -> Saved:
        """Write the audio of a text of any length to a file while it is generated. Its name says the encoding: .wav,
        .ogg, .opus, .pcm, .ulaw, .alaw, .codes, and with PyAV also .mp3 and .flac. Raises the utterance's error if it
        fails. `on`: what gets other messages, by their type, as in `Listener`: with `timestamps`, `Marks`, too."""
        path = Path(path)
        wanted = SynthesisConfig()
        wanted.CopyFrom(config or SynthesisConfig())
        wanted.audio.encoding = encoding_for(path)
        done, loop = UtteranceDone(), asyncio.get_running_loop()
        begin_s, first_audio_s = loop.time(), math.nan
        told = self.stream(text, wanted, timestamps=timestamps, scheduling=scheduling)
        async with AsyncExitStack() as stack, aclosing(told) as payloads:
            write: audio_out.Write | None = None
            async for payload in payloads:
                match payload:
                    case UtteranceStarted() if write is None:
                        opened = audio_out.audio_file(path, payload.audio.sample_rate_hz)
                        write = await stack.enter_async_context(opened)
                    case AudioChunk() if write is not None:
                        if math.isnan(first_audio_s):
                            first_audio_s = loop.time() - begin_s
                        write(payload.data)
                    case UtteranceDone():
                        done = payload
                    case _ if type(payload) in on:
                        on[type(payload)](payload)
        if done.reason == FINISH_REASON_FAILED:
            raise from_status(done.error)
        return Saved(path, done, first_audio_s)

    async def synthesize(
        self, text: str, config: SynthesisConfig | None = None, *, scheduling: Scheduling | None = None
    ) -> Clip:
        """Return the whole clip at once; for more than about a minute of audio use `stream` or `stream_to_file`."""
        request = SynthesizeRequest(config=config, text=text, scheduling=scheduling)

        async def call() -> Any:
            stub = self._connections.stub
            try:
                return await stub.Synthesize(request)
            except grpc.aio.AioRpcError as error:
                if is_starting(error):
                    self._connections.switch_from(stub)  # another address may serve
                raise

        async with time_limit(self._timeout_s, self.target):
            response = await call_with_retries(
                call,
                self.target,
                self._retry,
                num_tries_when_down=3,  # gRPC itself tries several times, so give up soon if nothing listens there
            )
        return Clip(response)

    async def decode(
        self,
        codes: bytes,
        *,
        encoding: str = "",
        sample_rate_hz: int = 0,
        frame_duration_ms: int = 0,
        bitrate_bps: int = 0,
        speed: float | None = None,
        volume_gain_db: float | None = None,
        max_lead_ms: int | None = None,
    ) -> AsyncGenerator[DecodeStarted | AudioChunk | UtteranceDone, None]:
        """Stream the audio of stored speech: started, audio chunks, done.

        `codes`: all bytes of an utterance that was spoken with the encoding `codes`, by this server or another one with
        the same codec. Ends with an error if the server is lost: call it again.
        """
        config = DecodeConfig(
            audio=audio_format(encoding, sample_rate_hz, frame_duration_ms, bitrate_bps),
            speed=speed,
            volume_gain_db=volume_gain_db,
        )
        call: Any = self._connections.stub.Decode(DecodeRequest(config=config, codes=codes, max_lead_ms=max_lead_ms))
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                yield getattr(response, response.WhichOneof("payload"))
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self.target) from None
        finally:
            call.cancel()

    async def explain(self, text: str, config: SynthesisConfig | None = None) -> ExplainResponse:
        """Return how a text would be spoken: tokens, prompt, settings, limits. Reasons for a refusal are in the answer,
        and are not raised."""
        response: ExplainResponse = await self._unary(
            self._connections.stub.Explain, ExplainRequest(config=config, text=text)
        )
        return response

    async def capabilities(self) -> GetCapabilitiesResponse:
        response: GetCapabilitiesResponse = await self._asked(
            self._connections.stub.GetCapabilities, GetCapabilitiesRequest()
        )
        return response

    async def usage(self) -> GetUsageResponse:
        """Return what this client's API key has used, and what is left of its limits."""
        response: GetUsageResponse = await self._asked(self._connections.stub.GetUsage, GetUsageRequest())
        return response

    async def health(self, service: str = "") -> str:
        """Return what the server's health service says: SERVING, NOT_SERVING, ..."""
        response = await self._unary(self._health.Check, health_pb2.HealthCheckRequest(service=service))
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))

    async def wait_until_serving(self, timeout_s: float) -> None:
        """Wait for a server that is still starting, even if it does not listen yet. Raises ServerUnavailable if it is
        not serving after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._watch_until_serving():
                    pass
        except TimeoutError:
            message = f"the server at {self.target} is not serving after {timeout_s:g} s"
            raise ServerUnavailable(grpc.StatusCode.UNAVAILABLE, message) from None

    async def _watch_until_serving(self) -> bool:
        """Return True once the server is serving, False if the connection breaks before that."""
        call = self._health.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                if response.status == health_pb2.HealthCheckResponse.SERVING:
                    return True
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise from_rpc_error(error, self.target) from None
        finally:
            call.cancel()
        return False
