"""A small real server of the contract with predictable answers: one sample per character of text, so that everything a
client sends shows in what it gets back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from sonorant.tts.v1 import (
    audio_pb2,
    speak_pb2,
    synthesis_pb2,
    text_to_speech_service_pb2,
    voice_pb2,
    voice_service_pb2,
)
from sonorant.tts.v1.text_to_speech_service_pb2_grpc import (
    TextToSpeechServiceServicer,
    add_TextToSpeechServiceServicer_to_server,
)
from sonorant.tts.v1.voice_service_pb2_grpc import VoiceServiceServicer, add_VoiceServiceServicer_to_server

RATE_HZ = 24000
LOUD = (20000).to_bytes(2, "little")
FORMAT = audio_pb2.AudioFormat(encoding=audio_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=RATE_HZ)


def status(code: int, message: str, reason: str, field: str = "") -> status_pb2.Status:
    details = [error_details_pb2.ErrorInfo(reason=reason, domain="sonorant.tts.v1")]
    if code == code_pb2.RESOURCE_EXHAUSTED:
        details.append(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=2)))
    if field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description="is wrong")
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    packed = [any_pb2.Any() for _ in details]
    for into, detail in zip(packed, details, strict=True):
        into.Pack(detail)
    return status_pb2.Status(code=code, message=message, details=packed)


BUSY = status(code_pb2.RESOURCE_EXHAUSTED, "all places are taken", "NO_PLACE")
NO_VOICE = status(code_pb2.NOT_FOUND, "voice.voice_id: is wrong", "VOICE_NOT_FOUND", "voice.voice_id")
NO_KEY = status(code_pb2.UNAUTHENTICATED, "an API key is needed", "API_KEY_MISSING")
REFUSALS = {"busy": BUSY, "nobody": NO_VOICE, "locked": NO_KEY}
BROKEN = status(code_pb2.INTERNAL, "internal error, request_id=7", "INTERNAL")
BAD_TEMPERATURE = status(code_pb2.INVALID_ARGUMENT, "a field is wrong", "INVALID_FIELD", "config.sampling.temperature")


class Speech(TextToSpeechServiceServicer):
    def __init__(self) -> None:
        self.received: list[speak_pb2.SpeakRequest] = []
        self.over = asyncio.Event()  # a Speak has ended
        self.resumable = False
        self.lost_after: list[int] = []  # after so many chunks the next session breaks off, as a dead server's does
        self.max_silence_ms = 0
        self.frozen_after: dict[int, int] = {}  # session -> chunks behind which it is silent; -1: from the beginning
        self.thaw = asyncio.Event()
        self.num_sessions = 0
        self.clips_lost_after: int | None = None
        self.clips_frozen_after: int | None = None
        self.greets_after_text = False  # its answer to the config comes behind the first text

    async def Speak(
        self, requests: AsyncIterator[speak_pb2.SpeakRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[speak_pb2.SpeakResponse]:
        open_id, count, num_chars = "", 0, 0
        self.num_sessions += 1
        chunks_left = self.lost_after.pop(0) if self.lost_after else -1
        received, num_chunks = 0, 0
        greeting: speak_pb2.SpeakResponse | None = None  # that is owed
        frozen_after = self.frozen_after.get(self.num_sessions)
        if frozen_after == -1:
            await self.thaw.wait()

        def response(**payload: object) -> speak_pb2.SpeakResponse:
            return speak_pb2.SpeakResponse(utterance_id=open_id, **payload)

        def done(reason: int, error: status_pb2.Status | None = None) -> speak_pb2.SpeakResponse:
            stats = synthesis_pb2.SynthesisStats(input_chars=num_chars, real_time_factor=0.5)
            return response(done=synthesis_pb2.UtteranceDone(reason=reason, stats=stats, error=error))

        try:
            async for request in self._one_by_one(requests):
                self.received.append(request)
                if greeting is not None:
                    yield greeting
                    greeting = None
                match request.WhichOneof("payload"):
                    case "config":
                        if refusal := REFUSALS.get(request.config.synthesis.voice.voice_id):
                            await context.abort_with_status(rpc_status.to_status(refusal))
                        session_id = f"s{self.num_sessions}"
                        session = speak_pb2.SessionStarted(
                            session_id=session_id,
                            audio=FORMAT,
                            resumable=self.resumable,
                            max_silence_ms=self.max_silence_ms,
                        )
                        greeting = speak_pb2.SpeakResponse(session=session)
                        if not self.greets_after_text:
                            yield greeting
                            greeting = None
                    case "resume":
                        received = request.resume.received_samples
                    case "text":
                        if not open_id:
                            count, num_chars = count + 1, 0
                            open_id = request.utterance_id or f"u{count}"
                            replay = synthesis_pb2.SynthesisConfig(language="english")
                            started = synthesis_pb2.UtteranceStarted(
                                voice_id="anna", seed=7, audio=FORMAT, replay=replay, checkpoint="c"
                            )
                            yield response(started=started)
                        if request.text == "limit":
                            yield done(synthesis_pb2.FINISH_REASON_MAX_AUDIO)
                            continue
                        if request.text == "fail":
                            yield done(synthesis_pb2.FINISH_REASON_FAILED, BROKEN)
                            open_id = ""
                            continue
                        heard = min(received, len(request.text))
                        received -= heard
                        num_samples = len(request.text) - heard
                        num_chars += len(request.text)
                        if chunks_left == 0:
                            await context.abort(grpc.StatusCode.CANCELLED, "the balancer's own words")
                        chunks_left -= 1
                        if num_chunks == frozen_after:
                            await self.thaw.wait()
                        num_chunks += 1
                        yield response(audio=audio_pb2.AudioChunk(data=LOUD * num_samples, num_samples=num_samples))
                    case "flush":
                        yield response(flush_done=speak_pb2.FlushDone(flush_id=request.flush.flush_id))
                    case "end":
                        yield done(synthesis_pb2.FINISH_REASON_COMPLETED)
                        open_id = ""
                    case "cancel":
                        yield done(synthesis_pb2.FINISH_REASON_CANCELLED)
                        open_id = ""
                    case "playback":
                        heard = f"{request.playback.played_ms} ms"
                        yield response(warning=synthesis_pb2.Warning(code="HEARD", message=heard))
            if open_id:
                yield done(synthesis_pb2.FINISH_REASON_COMPLETED)
        finally:
            self.over.set()

    async def _one_by_one(
        self, requests: AsyncIterator[speak_pb2.SpeakRequest]
    ) -> AsyncIterator[speak_pb2.SpeakRequest]:
        """What came with the config like what comes behind it."""
        async for request in requests:
            yield request
            if request.config.HasField("opening"):
                opening = request.config.opening
                yield speak_pb2.SpeakRequest(utterance_id=opening.utterance_id, text=opening.text)
                if opening.end:
                    end = speak_pb2.EndUtterance()
                    yield speak_pb2.SpeakRequest(utterance_id=opening.utterance_id, end=end)

    async def SynthesizeStream(
        self, request: text_to_speech_service_pb2.SynthesizeStreamRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[text_to_speech_service_pb2.SynthesizeStreamResponse]:
        if request.config.sampling.temperature:
            await context.abort_with_status(rpc_status.to_status(BAD_TEMPERATURE))
        started = synthesis_pb2.UtteranceStarted(
            checkpoint="c", replay=request.config, audio=FORMAT, max_silence_ms=self.max_silence_ms
        )
        if self.clips_lost_after is not None or self.clips_frozen_after is not None:
            yield text_to_speech_service_pb2.SynthesizeStreamResponse(started=started)
        for number, char in enumerate(request.text):
            if number == self.clips_lost_after:
                await context.abort(grpc.StatusCode.INTERNAL, "the balancer's own words")
            if number == self.clips_frozen_after:
                await self.thaw.wait()
            audio = audio_pb2.AudioChunk(data=LOUD, num_samples=len(char))
            yield text_to_speech_service_pb2.SynthesizeStreamResponse(audio=audio)
        finished = synthesis_pb2.UtteranceDone(reason=synthesis_pb2.FINISH_REASON_COMPLETED)
        yield text_to_speech_service_pb2.SynthesizeStreamResponse(done=finished)

    async def Synthesize(
        self, request: text_to_speech_service_pb2.SynthesizeRequest, context: grpc.aio.ServicerContext
    ) -> text_to_speech_service_pb2.SynthesizeResponse:
        if self.clips_lost_after is not None:
            self.clips_lost_after = None
            await context.abort(grpc.StatusCode.CANCELLED, "the balancer's own words")
        return text_to_speech_service_pb2.SynthesizeResponse(audio=LOUD * len(request.text), format=FORMAT)

    async def GetCapabilities(
        self, request: text_to_speech_service_pb2.GetCapabilitiesRequest, context: grpc.aio.ServicerContext
    ) -> text_to_speech_service_pb2.GetCapabilitiesResponse:
        return text_to_speech_service_pb2.GetCapabilitiesResponse(
            model="scripted", models=["scripted"], native_sample_rate_hz=RATE_HZ
        )


class Voices(VoiceServiceServicer):
    """Five voices, two per page."""

    async def ListVoices(
        self, request: voice_service_pb2.ListVoicesRequest, context: grpc.aio.ServicerContext
    ) -> voice_service_pb2.ListVoicesResponse:
        first = int(request.page_token or 0)
        voices = [
            voice_pb2.Voice(voice_id=f"v{i}", kind=voice_pb2.VOICE_KIND_PRESET, languages=["english"])
            for i in range(first, min(first + 2, 5))
        ]
        token = str(first + 2) if first + 2 < 5 else ""
        return voice_service_pb2.ListVoicesResponse(voices=voices, next_page_token=token)


@asynccontextmanager
async def scripted_server(
    target: str = "127.0.0.1:0", *, serving: bool = True, speech: Speech | None = None
) -> AsyncIterator[tuple[str, Speech]]:
    """Yields its HOST:PORT and the servicer. `speech`: one with other answers."""
    server = grpc.aio.server()
    speech = speech or Speech()
    add_TextToSpeechServiceServicer_to_server(speech, server)
    add_VoiceServiceServicer_to_server(Voices(), server)
    health_servicer = health.aio.HealthServicer()
    state = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
    for name in ("", "readiness"):
        await health_servicer.set(name, state)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    port = server.add_insecure_port(target)
    await server.start()
    try:
        yield f"127.0.0.1:{port}", speech
    finally:
        await server.stop(None)
