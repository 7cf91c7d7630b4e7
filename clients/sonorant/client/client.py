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
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sonorant.client import clips
from sonorant.client.access import Access
from sonorant.client.connections import Connections
from sonorant.client.errors import ServerUnavailable, from_rpc_error
from sonorant.client.events import Payload
from sonorant.client.session import Session
from sonorant.client.silence_limits import max_silence_for_lead_ms
from sonorant.client.trace import Trace
from sonorant.client.voice_methods import VoiceMethods
from sonorant.tts.v1.audio_pb2 import AudioChunk, AudioEncoding, AudioFormat
from sonorant.tts.v1.explain_pb2 import ExplainRequest, ExplainResponse
from sonorant.tts.v1.speak_pb2 import CommitMode, SpeakConfig, TextPolicy
from sonorant.tts.v1.synthesis_pb2 import (
    PRIORITY_BATCH,
    TIMESTAMP_MODE_WORD,
    Sampling,
    Scheduling,
    SynthesisConfig,
    UtteranceDone,
)
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    DecodeConfig,
    DecodeRequest,
    DecodeStarted,
    GetCapabilitiesRequest,
    GetCapabilitiesResponse,
    SynthesizeRequest,
    SynthesizeResponse,
    SynthesizeStreamRequest,
)
from sonorant.tts.v1.voice_pb2 import ReferenceAudio, VoiceMix, VoiceSelector
from sonorant.tts.v1.voice_service_pb2_grpc import VoiceServiceStub

DEFAULT_TARGET = "127.0.0.1:50051"

_ENCODING_PREFIX = "AUDIO_ENCODING_"
_COMMIT_MODE_PREFIX = "COMMIT_MODE_"
COMMIT_MODES = tuple(name.removeprefix(_COMMIT_MODE_PREFIX).lower() for name in CommitMode.keys()[1:])
ENCODINGS = tuple(name.removeprefix(_ENCODING_PREFIX).lower() for name in AudioEncoding.keys()[1:])


def synthesis_config(
    *,
    voice: str = "",
    design: str = "",
    reference: bytes | None = None,
    transcript: str = "",
    mix: VoiceMix | None = None,
    language: str = "",
    instructions: str = "",
    encoding: str = "",
    sample_rate_hz: int = 0,
    frame_duration_ms: int = 0,
    bitrate_bps: int = 0,
    speed: float | None = None,
    volume_gain_db: float | None = None,
    max_audio_ms: int = 0,
    pronunciations: Mapping[str, str] | None = None,
    non_streaming_mode: bool | None = None,
    **sampling: Any,
) -> SynthesisConfig:
    """Make a SynthesisConfig from its common fields and those of its `Sampling` (temperature, seed, ...).

    A field that is left out takes the default of the server or the checkpoint. Instead of `voice`, give `design`, a
    description of the voice; `reference`, a recording of it (with `transcript`, what is said there); or `mix`, made of
    several voices by `voice_mix`.
    """
    config = SynthesisConfig(
        voice=_selector(voice, design, reference, transcript, mix),
        language=language,
        instructions=instructions,
        audio=_audio_format(encoding, sample_rate_hz, frame_duration_ms, bitrate_bps),
        sampling=Sampling(**sampling),
        speed=speed,
        volume_gain_db=volume_gain_db,
        max_audio_ms=max_audio_ms,
        pronunciations=pronunciations,
    )
    if non_streaming_mode is not None:
        config.non_streaming_mode = non_streaming_mode
    return config


def scheduling(*, batch: bool = False, max_wait_ms: int = 0) -> Scheduling:
    """Say what happens when the server is full. `batch`: nobody listens, so others go first. `max_wait_ms`: how long an
    utterance may wait for a place."""
    return Scheduling(priority=PRIORITY_BATCH if batch else None, max_wait_ms=max_wait_ms)


def text_policy(
    mode: str = "", *, max_buffer_delay_ms: int | None = None, first_chunk_min_chars: int | None = None
) -> TextPolicy:
    """Say when text is passed to the model. `mode`: "token" (the default), "sentence", or "manual", only at a flush or
    the end. `max_buffer_delay_ms`: how long to wait for more text before all so far is spoken to its end; by default
    300 ms after the mark of a sentence, 2 s after other words. `first_chunk_min_chars`: how much text to wait for
    before speech begins."""
    if mode and mode not in COMMIT_MODES:
        raise ValueError(f"mode {mode!r} is unknown; use one of {', '.join(COMMIT_MODES)}")
    return TextPolicy(
        mode=CommitMode.Value(_COMMIT_MODE_PREFIX + mode.upper()) if mode else None,
        max_buffer_delay_ms=max_buffer_delay_ms,
        first_chunk_min_chars=first_chunk_min_chars,
    )


def _audio_format(encoding: str, sample_rate_hz: int, frame_duration_ms: int, bitrate_bps: int) -> AudioFormat:
    if encoding and encoding not in ENCODINGS:
        raise ValueError(f"encoding {encoding!r} is unknown; use one of {', '.join(ENCODINGS)}")
    return AudioFormat(
        encoding=AudioEncoding.Value(_ENCODING_PREFIX + (encoding or "unspecified").upper()),
        sample_rate_hz=sample_rate_hz,
        frame_duration_ms=frame_duration_ms,
        bitrate_bps=bitrate_bps,
    )


def _selector(
    voice: str, design: str, reference: bytes | None, transcript: str, mix: VoiceMix | None
) -> VoiceSelector | None:
    if sum(map(bool, (voice, design, reference, mix))) > 1:
        raise ValueError("voice, design, reference and mix exclude each other; give one of them")
    if transcript and not reference:
        raise ValueError("transcript is what is said in the reference; give the reference, too")
    if reference:
        return VoiceSelector(reference=ReferenceAudio(audio=reference, transcript=transcript))
    if mix:
        return VoiceSelector(mix=mix)
    return VoiceSelector(design=design) if design else VoiceSelector(voice_id=voice) if voice else None


class SpeechClient(VoiceMethods):
    """A connection of its own to a server. Every method raises the errors of `sonorant.client.errors`."""

    def __init__(self, target: str = DEFAULT_TARGET, access: Access | None = None) -> None:
        """`access`: TLS and the API key; None = as the environment says, see `Access.from_environment`."""
        self.target = target
        access = access or Access.from_environment()
        self._connections = Connections(lambda second: access.channel(target, second=second))
        self._voices = VoiceServiceStub(self._connections.channels[0])
        self._health = health_pb2_grpc.HealthStub(self._connections.channels[0])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls that are still running are cancelled."""
        await self._connections.close()

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
        utterance has to wait, `Queued` comes before it. `text_policy`: made by `text_policy`.
        """
        first = SpeakConfig(
            synthesis=config,
            text_policy=text_policy,
            timestamps=TIMESTAMP_MODE_WORD if timestamps else None,
            max_lead_ms=max_lead_ms,
            idle_timeout_ms=idle_timeout_ms,
            resumable=resume,
            max_silence_ms=max_silence_for_lead_ms(max_lead_ms) if resume else None,
            pack_codes=resume,
            scheduling=scheduling,
        )
        return Session(self._connections, self.target, first, trace, text=text, end=end)

    async def stream(
        self,
        text: str,
        config: SynthesisConfig | None = None,
        *,
        max_lead_ms: int | None = None,
        scheduling: Scheduling | None = None,
    ) -> AsyncIterator[Payload]:
        """Stream the audio of a whole text as it is generated: started, warnings and audio chunks, done. The stream
        survives the loss of a server, as a session does."""
        request = SynthesizeStreamRequest(config=config, text=text, max_lead_ms=max_lead_ms, scheduling=scheduling)
        async with aclosing(clips.stream(self._connections, self.target, request)) as payloads:
            async for payload in payloads:
                yield payload

    async def synthesize(
        self, text: str, config: SynthesisConfig | None = None, *, scheduling: Scheduling | None = None
    ) -> SynthesizeResponse:
        """Return the whole clip at once; for more than about a minute of audio use `stream`."""
        request = SynthesizeRequest(config=config, text=text, scheduling=scheduling)
        response: SynthesizeResponse = await clips.call_with_retries(
            lambda: self._connections.stub.Synthesize(request), self.target
        )
        return response

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
            audio=_audio_format(encoding, sample_rate_hz, frame_duration_ms, bitrate_bps),
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
        response: GetCapabilitiesResponse = await self._unary(
            self._connections.stub.GetCapabilities, GetCapabilitiesRequest()
        )
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
