"""The RPC methods: each checks its request, asks for a place, and hands over to what does the work."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from engine import EnginePool
from service import __version__, call_context
from service.admission import Admission
from service.errors import AudioTooLong
from service.explain import explain
from service.formats import RATES_HZ, served_encodings
from service.playback import Playback
from service.requests import check_lead, check_synthesis, check_timestamps
from service.session import MAX_OPEN_UTTERANCES, Session
from service.text import check_whole
from service.text_budget import TextBudget
from service.utterance import Utterance
from service.voice_choice import VoiceChooser
from sonorant.tts.v1 import (
    audio_pb2,
    explain_pb2,
    speak_pb2,
    synthesis_pb2,
    text_to_speech_service_pb2,
    text_to_speech_service_pb2_grpc,
)

# A default gRPC client takes 4 MiB in one message; the rest is for everything that is not audio.
MAX_UNARY_AUDIO_BYTES = 4 * 1024 * 1024 - 64 * 1024


class TextToSpeechServicer(text_to_speech_service_pb2_grpc.TextToSpeechServiceServicer):  # type: ignore[misc]
    def __init__(
        self,
        engine: EnginePool,
        voices: VoiceChooser,
        admission: Admission,
        tasks: asyncio.TaskGroup,
        max_text_chars: int,
    ) -> None:
        """`tasks` outlives every call; the tasks of a session run in it, and end with the call."""
        self._engine = engine
        self._voices = voices
        self._admission = admission
        self._tasks = tasks
        self._max_text_chars = max_text_chars
        self._text_budget = TextBudget()
        self._sessions: set[Session] = set()

    def go_away(self, drain_ms: int) -> None:
        for session in self._sessions:
            session.go_away(drain_ms)

    async def Synthesize(
        self, request: text_to_speech_service_pb2.SynthesizeRequest, context: Any
    ) -> text_to_speech_service_pb2.SynthesizeResponse:
        utterance = await self._whole_text(request, max_lead_ms=0, whole=True)
        self._enter(len(request.text))
        await self._greet(context)
        audio = bytearray()
        response = text_to_speech_service_pb2.SynthesizeResponse(format=utterance.spec.audio.to_proto())
        async with aclosing(utterance.messages()) as messages:
            async for message in messages:
                match message:
                    case synthesis_pb2.UtteranceStarted(voice_id=voice_id, seed=seed, checkpoint=checkpoint):
                        response.voice_id, response.seed, response.checkpoint = voice_id, seed, checkpoint
                        response.replay.CopyFrom(message.replay)
                    case audio_pb2.AudioChunk(data=data):
                        audio += data
                    case synthesis_pb2.Marks(marks=marks):
                        response.marks.extend(marks)
                    case synthesis_pb2.Warning():
                        response.warnings.append(message)
                    case synthesis_pb2.UtteranceDone(reason=reason, stats=stats):
                        response.reason = reason
                        response.stats.CopyFrom(stats)
                if len(audio) > MAX_UNARY_AUDIO_BYTES:
                    raise AudioTooLong(MAX_UNARY_AUDIO_BYTES)
        # In a thread, since FLAC takes long enough to be heard by others.
        response.audio = await asyncio.to_thread(utterance.spec.audio.file, bytes(audio))
        return response

    async def SynthesizeStream(
        self, request: text_to_speech_service_pb2.SynthesizeStreamRequest, context: Any
    ) -> AsyncIterator[text_to_speech_service_pb2.SynthesizeStreamResponse]:
        utterance = await self._whole_text(request, check_lead(request.max_lead_ms, "max_lead_ms"), whole=False)
        self._enter(len(request.text))
        call_context.when_over(utterance.abort)
        await self._greet(context)
        respond = text_to_speech_service_pb2.SynthesizeStreamResponse
        async with aclosing(utterance.messages()) as messages:
            async for message in messages:
                match message:
                    case synthesis_pb2.UtteranceStarted():
                        yield respond(started=message)
                    case audio_pb2.AudioChunk():
                        yield respond(audio=message)
                    case synthesis_pb2.Marks():
                        yield respond(marks=message)
                    case synthesis_pb2.Warning():
                        yield respond(warning=message)
                    case synthesis_pb2.UtteranceDone():
                        yield respond(done=message)

    async def Speak(
        self, requests: AsyncGenerator[speak_pb2.SpeakRequest, None], context: Any
    ) -> AsyncIterator[speak_pb2.SpeakResponse]:
        self._enter()
        session_id = secrets.token_hex(8)
        call_context.enter_session(session_id)
        call = call_context.current()
        take_text = partial(self._text_budget.take, call.caller)
        session = Session(self._engine, self._voices, session_id, call.request_id, self._text_limit(), take_text)
        await self._greet(context, ("x-session-id", session_id))
        self._sessions.add(session)
        task = self._tasks.create_task(session.run(requests))

        def leave(_call: object) -> None:
            self._sessions.discard(session)
            session.outbox.abandon()
            task.add_done_callback(_forget_cancellation)
            task.cancel()

        # Not in a `finally`: while a response is being written, this generator would be closed only when collected.
        call_context.when_over(leave)
        async for response in session.outbox.responses():
            yield response

    async def Explain(self, request: explain_pb2.ExplainRequest, context: Any) -> explain_pb2.ExplainResponse:
        await self._greet(context)
        return await explain(request, self._engine, self._voices, self._text_limit(), MAX_UNARY_AUDIO_BYTES)

    async def GetCapabilities(
        self, request: text_to_speech_service_pb2.GetCapabilitiesRequest, context: Any
    ) -> text_to_speech_service_pb2.GetCapabilitiesResponse:
        info, caller = self._engine.info, call_context.current().caller
        await self._greet(context)
        return text_to_speech_service_pb2.GetCapabilitiesResponse(
            model=info.model,
            server_version=__version__,
            native_sample_rate_hz=info.sample_rate_hz,
            sample_rates_hz=RATES_HZ,
            encodings=served_encodings(),
            languages=info.languages,
            supports_cloning=any(info.task == "base" for info in self._engine.infos),
            supports_design=any(info.task == "voice_design" for info in self._engine.infos),
            timestamp_modes=[synthesis_pb2.TIMESTAMP_MODE_PROGRESS],
            max_text_chars=self._text_limit(),
            max_utterances_per_session=MAX_OPEN_UTTERANCES,
            max_text_chars_per_minute=caller.max_text_chars_per_minute or 0,
            max_sessions=self._admission.limit(caller),
            active_sessions=self._admission.active_sessions,
            max_streams=info.max_streams,
            active_streams=self._engine.num_streams,
        )

    async def _whole_text(self, request: Any, max_lead_ms: int, *, whole: bool) -> Utterance:
        """The utterance of a request that has all of its text; `whole` = so has its response. Takes nothing yet."""
        check_whole(request.text, self._text_limit(), "text")
        timestamps = check_timestamps(request.timestamps, "timestamps")
        spec = check_synthesis(
            request.config,
            await self._voices.choose(request.config.voice, "config.voice"),
            self._engine,
            "config",
            non_streaming_default=None,
            whole=whole,
        )
        spec = replace(spec, timestamps=timestamps)
        utterance = Utterance("", spec, self._engine, Playback(), max_lead_ms, self._text_limit())
        utterance.push_text(request.text)
        utterance.end()
        return utterance

    def _enter(self, num_chars: int = 0) -> None:
        """Take a place until the call is over, and the text that came with it."""
        caller = call_context.current().caller
        call_context.when_over(self._admission.enter(caller))
        self._text_budget.take(caller, num_chars)

    def _text_limit(self) -> int:
        return call_context.current().caller.text_limit(self._max_text_chars)

    async def _greet(self, context: Any, *more: tuple[str, str]) -> None:
        """Initial metadata goes out at once: clients wait for it, and learn that they were let in."""
        await context.send_initial_metadata(
            (("x-request-id", call_context.current().request_id), ("x-model", self._engine.info.model), *more)
        )


def _forget_cancellation(task: asyncio.Task[None]) -> None:
    """A task keeps the error that it was cancelled by, and with it, in a cycle, all that its frames knew."""
    try:
        task.exception()
    except asyncio.CancelledError as error:
        error.__traceback__ = None
