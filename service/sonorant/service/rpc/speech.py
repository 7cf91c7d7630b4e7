"""The RPC methods: each checks its request, asks for a place, and hands over to what does the work."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from sonorant.engine import EnginePool
from sonorant.service import __version__
from sonorant.service.access.admission import Admission
from sonorant.service.access.api_keys import Caller
from sonorant.service.access.limits import Limits
from sonorant.service.audio.formats import RATES_HZ, served_encodings
from sonorant.service.calls import context as call_context
from sonorant.service.calls.context import CallContext
from sonorant.service.calls.loop_share import LoopShare
from sonorant.service.errors import AudioTooLong
from sonorant.service.rpc.explain import explain
from sonorant.service.rpc.unhurried import Unhurried
from sonorant.service.speak.alive import Quiet, SignsOfLife
from sonorant.service.speak.commands import MAX_OPEN_UTTERANCES
from sonorant.service.speak.decoding import DecodeMessage, Decoding, check_decode
from sonorant.service.speak.delivery import Message
from sonorant.service.speak.outbox import Outbox
from sonorant.service.speak.phrases import CallerPhrases, Phrases
from sonorant.service.speak.playout import Playout
from sonorant.service.speak.requests import check_lead, check_silence, check_synthesis, check_timestamps
from sonorant.service.speak.reservations import Reservations
from sonorant.service.speak.session import Session
from sonorant.service.speak.turns import PAYLOADS
from sonorant.service.speak.utterance import Utterance
from sonorant.service.text.checks import check_whole, slices
from sonorant.service.voices.choice import VoiceChooser
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
RESUMING = "sonorant-resuming"  # metadata of calls that go on with what was begun elsewhere


class TextToSpeechServicer(text_to_speech_service_pb2_grpc.TextToSpeechServiceServicer):  # type: ignore[misc]
    def __init__(
        self,
        engine: EnginePool,
        voices: VoiceChooser,
        admission: Admission,
        tasks: asyncio.TaskGroup,
        max_text_chars: int,
        limits: Limits,
        phrases: Phrases,
        loop_share: LoopShare,
        num_callers: Callable[[], int],
    ) -> None:
        """`tasks` outlives every call; the tasks of a session run in it, and end with the call. `num_callers`: who
        could come; 1 = all are one."""
        self._engine = engine
        self._voices = voices
        self._admission = admission
        self._tasks = tasks
        self._max_text_chars = max_text_chars
        self._limits = limits
        self._reservations = Reservations(engine, num_callers)
        self._phrases = phrases
        self._loop_share = loop_share
        self._sessions: set[Session] = set()
        self._signs = SignsOfLife()
        self._explaining = Unhurried()  # it is for people

    def go_away(self, drain_ms: int) -> None:
        for session in self._sessions:
            session.go_away(drain_ms)

    async def Synthesize(
        self, request: text_to_speech_service_pb2.SynthesizeRequest, context: Any
    ) -> text_to_speech_service_pb2.SynthesizeResponse:
        call = call_context.current()
        utterance = await self._whole_text(request, 0, call.caller, whole=True)
        await self._greet(context, call)
        audio = bytearray()
        response = text_to_speech_service_pb2.SynthesizeResponse(format=utterance.state.spec.audio.to_proto())

        async def add(message: Message, on_taken: Callable[[], None] | None = None) -> None:
            if on_taken is not None:
                on_taken()
            match message:
                case synthesis_pb2.UtteranceStarted(voice_id=voice_id, seed=seed, checkpoint=checkpoint):
                    response.voice_id, response.seed, response.checkpoint = voice_id, seed, checkpoint
                    response.replay.CopyFrom(message.replay)
                case audio_pb2.AudioChunk(data=data):
                    audio.extend(data)
                    if len(audio) > MAX_UNARY_AUDIO_BYTES:
                        raise AudioTooLong(MAX_UNARY_AUDIO_BYTES)
                case synthesis_pb2.Marks(marks=marks):
                    response.marks.extend(marks)
                case synthesis_pb2.Warning():
                    response.warnings.append(message)

        done = utterance.done(await utterance.speak(add))
        response.reason = done.reason
        response.stats.CopyFrom(done.stats)
        # In a thread, since FLAC takes long enough to be heard by others.
        response.audio = await asyncio.to_thread(utterance.state.spec.audio.file, bytes(audio))
        return response

    async def SynthesizeStream(
        self, request: text_to_speech_service_pb2.SynthesizeStreamRequest, context: Any
    ) -> AsyncIterator[text_to_speech_service_pb2.SynthesizeStreamResponse]:
        call = call_context.current()
        max_lead_ms = check_lead(request.max_lead_ms, "max_lead_ms")
        max_silence_s = check_silence(request, "max_silence_ms")
        utterance = await self._whole_text(request, max_lead_ms, call.caller, whole=False)
        outbox: Outbox[text_to_speech_service_pb2.SynthesizeStreamResponse] = Outbox()
        # It begins while the greeting is on its way.
        self._run(_speak_whole(utterance, outbox, request.max_silence_ms), outbox)
        await self._greet(context, call)
        if max_silence_s is not None:
            quiet = Quiet(outbox, _sign, max_silence_s, is_open=lambda: True)
            call_context.when_over(lambda _call: self._signs.forget(quiet))
            self._signs.follow(quiet)
        async for response in outbox.responses():
            yield response

    async def Speak(
        self, requests: AsyncGenerator[speak_pb2.SpeakRequest, None], context: Any
    ) -> AsyncGenerator[speak_pb2.SpeakResponse, None]:
        call = call_context.current()
        resuming = any(key == RESUMING for key, _ in context.invocation_metadata() or ())
        call_context.when_over(self._admission.enter(call.caller, resuming=resuming))
        session_id = secrets.token_hex(8)
        call_context.enter_session(session_id)
        session = Session(
            self._reservations.of(call.caller.counted_as),
            self._voices,
            self._limits,
            call.caller,
            session_id,
            call.request_id,
            call.caller.text_limit(self._max_text_chars),
            CallerPhrases(self._phrases, call.caller.name),
            self._loop_share.of(call.caller.counted_as),
            self._signs,
        )
        self._sessions.add(session)  # before it is greeted: a drain may begin meanwhile
        call_context.when_over(lambda _call: self._sessions.discard(session))
        await self._limits.enter(call.caller, call_context.when_over)
        self._run(session.run(requests), session.outbox)  # it begins while the greeting is on its way
        await self._greet(context, call, ("x-session-id", session_id))
        async for response in session.outbox.responses():
            yield response

    async def Decode(
        self, request: text_to_speech_service_pb2.DecodeRequest, context: Any
    ) -> AsyncIterator[text_to_speech_service_pb2.DecodeResponse]:
        call = call_context.current()
        max_lead_ms = check_lead(request.max_lead_ms, "max_lead_ms")
        call_context.when_over(self._admission.enter(call.caller))
        await self._limits.enter(call.caller, call_context.when_over)
        steps, part, spec = check_decode(request, self._engine), self._loop_share.of(call.caller.counted_as), None
        while spec is None:
            spec = await part.do(next, steps)
        await self._limits.prepare(call.caller, spec.num_chars)
        self._limits.take(call.caller, spec.num_chars)
        decoding = Decoding(spec, self._engine, max_lead_ms)
        call_context.when_over(decoding.abort)
        await self._greet(context, call)
        outbox: Outbox[text_to_speech_service_pb2.DecodeResponse] = Outbox()
        self._run(_decode_whole(decoding, outbox), outbox)
        async for response in outbox.responses():
            yield response

    async def Explain(self, request: explain_pb2.ExplainRequest, context: Any) -> explain_pb2.ExplainResponse:
        call = call_context.current()
        call_context.when_over(self._admission.enter(call.caller))
        await self._greet(context, call)
        async with self._explaining.turn():
            return await explain(
                request,
                self._engine,
                self._voices,
                call,
                call.caller.text_limit(self._max_text_chars),
                MAX_UNARY_AUDIO_BYTES,
            )

    async def GetCapabilities(
        self, request: text_to_speech_service_pb2.GetCapabilitiesRequest, context: Any
    ) -> text_to_speech_service_pb2.GetCapabilitiesResponse:
        info, call = self._engine.info, call_context.current()
        timing = [info.model for info in self._engine.infos if info.times_text]
        await self._greet(context, call)
        return text_to_speech_service_pb2.GetCapabilitiesResponse(
            model=info.model,
            server_version=__version__,
            native_sample_rate_hz=info.sample_rate_hz,
            sample_rates_hz=RATES_HZ,
            encodings=served_encodings(),
            languages=info.languages,
            supports_cloning=any(info.task == "base" for info in self._engine.infos),
            supports_design=any(info.task == "voice_design" for info in self._engine.infos),
            timestamp_modes=[
                synthesis_pb2.TIMESTAMP_MODE_PROGRESS,
                *([synthesis_pb2.TIMESTAMP_MODE_WORD] if timing else []),
            ],
            word_timing_models=timing,
            max_text_chars=call.caller.text_limit(self._max_text_chars),
            max_utterances_per_session=MAX_OPEN_UTTERANCES,
            max_text_chars_per_minute=call.caller.max_text_chars_per_minute or 0,
            max_sessions=self._admission.limit(call.caller),
            active_sessions=self._admission.active_sessions,
            max_streams=info.max_streams,
            active_streams=self._engine.num_streams,
        )

    async def _whole_text(self, request: Any, max_lead_ms: int, caller: Caller, *, whole: bool) -> Utterance:
        """The utterance of a request that has all of its text, let in; `whole` = so has its response."""
        limit = caller.text_limit(self._max_text_chars)
        check_whole(request.text, limit, "text")
        timestamps = check_timestamps(request.timestamps, "timestamps")
        spec = check_synthesis(
            request.config,
            await self._voices.choose(request.config.voice, "config.voice", caller),
            self._engine,
            "config",
            non_streaming_default=None,
            whole=whole,
        )
        spec = replace(spec, timestamps=timestamps)
        charge = partial(self._limits.take, caller)
        phrases = CallerPhrases(self._phrases, caller.name)
        reservations = self._reservations.of(caller.counted_as)
        utterance = Utterance(
            "", spec, reservations, Playout(), max_lead_ms, limit, charge, whole=whole, phrases=phrases
        )
        call_context.when_over(utterance.abort)
        call_context.when_over(self._admission.enter(caller))
        await self._limits.enter(caller, call_context.when_over)
        await self._limits.prepare(caller, len(request.text))
        utterance.accept(request.text)
        part = self._loop_share.of(caller.counted_as)
        for piece in slices(request.text):
            await part.do(utterance.push, piece)
        await part.do(utterance.end)
        return utterance

    def _run(self, work: Coroutine[Any, Any, None], outbox: Outbox[Any]) -> None:
        """In a task of its own until the call is over."""
        task = self._tasks.create_task(work)

        def leave(_call: object) -> None:
            outbox.abandon()
            task.add_done_callback(_forget_cancellation)
            task.cancel()

        # Not in a `finally`: while a response is being written, the method's generator would be closed only when
        # collected.
        call_context.when_over(leave)

    async def _greet(self, context: Any, call: CallContext, *more: tuple[str, str]) -> None:
        """Initial metadata goes out at once: clients wait for it, and learn that they were let in."""
        await context.send_initial_metadata(
            (("x-request-id", call.request_id), ("x-model", self._engine.info.model), *more)
        )


def _sign() -> text_to_speech_service_pb2.SynthesizeStreamResponse:
    return text_to_speech_service_pb2.SynthesizeStreamResponse(alive=speak_pb2.Alive())


async def _speak_whole(
    utterance: Utterance, outbox: Outbox[text_to_speech_service_pb2.SynthesizeStreamResponse], max_silence_ms: int
) -> None:
    respond = text_to_speech_service_pb2.SynthesizeStreamResponse

    async def send(message: Message, on_taken: Callable[[], None] | None = None) -> None:
        if isinstance(message, synthesis_pb2.UtteranceStarted):
            message.max_silence_ms = max_silence_ms
        await outbox.send(respond(**{PAYLOADS[type(message)]: message}), on_taken)

    try:
        done = utterance.done(await utterance.speak(send))
    except (Exception, asyncio.CancelledError) as error:  # one that nobody asked for is an error like others
        outbox.close(error)
    else:
        outbox.post(respond(done=done))
        outbox.close()


async def _decode_whole(decoding: Decoding, outbox: Outbox[text_to_speech_service_pb2.DecodeResponse]) -> None:
    respond = text_to_speech_service_pb2.DecodeResponse

    async def send(message: DecodeMessage, on_taken: Callable[[], None] | None = None) -> None:
        payload = "audio" if isinstance(message, audio_pb2.AudioChunk) else "started"
        await outbox.send(respond(**{payload: message}), on_taken)

    try:
        done = await decoding.run(send)
    except (Exception, asyncio.CancelledError) as error:  # one that nobody asked for is an error like others
        outbox.close(error)
    else:
        outbox.post(respond(done=done))
        outbox.close()


def _forget_cancellation(task: asyncio.Task[None]) -> None:
    """A task keeps the error that it was cancelled by, and with it, in a cycle, all that its frames knew."""
    try:
        task.exception()
    except asyncio.CancelledError as error:
        error.__traceback__ = None
