"""The RPC methods of speech: each checks its request, takes a place, and passes the work on."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

from sonorant.engine import EngineState, EngineUnavailable
from sonorant.service import __version__
from sonorant.service.access.api_keys import Caller
from sonorant.service.audio.formats import RATES_HZ, served_encodings
from sonorant.service.calls import context as call_context
from sonorant.service.calls.context import CallContext
from sonorant.service.errors import AudioTooLong, Draining
from sonorant.service.pacing.outbox import Outbox
from sonorant.service.pacing.pacer import Playout
from sonorant.service.rpc.background_work import BackgroundWork
from sonorant.service.rpc.explain import explain
from sonorant.service.rpc.usage import usage
from sonorant.service.session.config import check_lead, check_silence
from sonorant.service.session.decoding import DecodeMessage, Decoding, check_decode
from sonorant.service.session.keepalive import Keepalive, Keepalives
from sonorant.service.session.parts import Parts
from sonorant.service.session.session import MAX_OPEN_UTTERANCES, ServedSession
from sonorant.service.session.turns import PAYLOADS
from sonorant.service.text.checks import check_whole, slices
from sonorant.service.utterance.delivery import Message
from sonorant.service.utterance.requests import check_synthesis, check_timestamps, text_formats
from sonorant.service.utterance.scheduling import check_scheduling
from sonorant.service.utterance.utterance import Beginning, Utterance
from sonorant.tts.v1 import (
    audio_pb2,
    explain_pb2,
    speak_pb2,
    synthesis_pb2,
    text_to_speech_service_pb2,
    text_to_speech_service_pb2_grpc,
)

# A gRPC client accepts messages of 4 MiB by default; 64 KiB of that are left for everything that is not audio.
MAX_UNARY_AUDIO_BYTES = 4 * 1024 * 1024 - 64 * 1024
# The text that most clients send with the call goes to the engine first; a client that waits for the metadata before it
# sends anything gets it this much later.
METADATA_WAITS_S = 0.001
RESUMING = "sonorant-resuming"  # metadata of calls that resume what another server has begun


class TextToSpeechServicer(text_to_speech_service_pb2_grpc.TextToSpeechServiceServicer):  # type: ignore[misc]
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._sessions: set[ServedSession] = set()
        self._has_served = False
        self._keepalives = Keepalives()
        self._explaining = BackgroundWork()  # people read its answers, and can wait

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
        response = text_to_speech_service_pb2.SynthesizeResponse(format=utterance.spec.audio.to_proto())

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

        done = utterance.done(await utterance.speak(add))
        response.reason = done.reason
        response.stats.CopyFrom(done.stats)
        response.warnings.extend(done.warnings)
        # In a thread: FLAC would hold up the event loop long enough for gaps in others' audio.
        response.audio = await asyncio.to_thread(utterance.spec.audio.file, bytes(audio))
        return response

    async def SynthesizeStream(
        self, request: text_to_speech_service_pb2.SynthesizeStreamRequest, context: Any
    ) -> AsyncIterator[text_to_speech_service_pb2.SynthesizeStreamResponse]:
        call = call_context.current()
        max_lead_ms = check_lead(request.max_lead_ms, "max_lead_ms")
        max_silence_s = check_silence(request, "max_silence_ms")
        utterance = await self._whole_text(request, max_lead_ms, call.caller, whole=False)
        outbox: Outbox[text_to_speech_service_pb2.SynthesizeStreamResponse] = Outbox()
        # The work begins while the initial metadata is on its way.
        self._run(_speak_whole(utterance, outbox, request.max_silence_ms), outbox)
        await self._greet(context, call)
        if max_silence_s is not None:
            keepalive = Keepalive(outbox, _sign, max_silence_s, is_open=lambda: True)
            call_context.on_call_end(lambda _call: self._keepalives.forget(keepalive))
            self._keepalives.follow(keepalive)
        async for response in outbox.responses():
            yield response

    async def Speak(
        self, requests: AsyncGenerator[speak_pb2.SpeakRequest, None], context: Any
    ) -> AsyncGenerator[speak_pb2.SpeakResponse, None]:
        call = call_context.current()
        resuming = any(key == RESUMING for key, _ in context.invocation_metadata() or ())
        self._admit(call.caller, resuming=resuming)
        session_id = secrets.token_hex(8)
        call_context.enter_session(session_id)
        session = ServedSession(call_context.current(), self._parts, self._keepalives, resuming=resuming)
        self._sessions.add(session)  # before the next await, as a drain may begin there
        call_context.on_call_end(lambda _call: self._sessions.discard(session))
        await self._parts.limits.enter(call.caller, call_context.on_call_end)
        self._run(session.run(requests), session.outbox)
        await session.begun(within_s=METADATA_WAITS_S)
        await self._greet(context, call, ("x-session-id", session_id))
        async for response in session.outbox.responses():
            yield response

    async def Decode(
        self, request: text_to_speech_service_pb2.DecodeRequest, context: Any
    ) -> AsyncIterator[text_to_speech_service_pb2.DecodeResponse]:
        call = call_context.current()
        max_lead_ms = check_lead(request.max_lead_ms, "max_lead_ms")
        self._admit(call.caller)
        await self._parts.limits.enter(call.caller, call_context.on_call_end)
        part, spec = self._parts.loop_share.of(call.caller.limit_key), None
        steps = check_decode(request, self._parts.engine)
        while spec is None:
            spec = await part.do(next, steps)
        await self._parts.limits.prepare(call.caller, spec.num_chars)
        self._parts.limits.take(call.caller, spec.num_chars)
        decoding = Decoding(spec, self._parts.engine, max_lead_ms)
        call_context.on_call_end(decoding.abort)
        await self._greet(context, call)
        outbox: Outbox[text_to_speech_service_pb2.DecodeResponse] = Outbox()
        self._run(_decode_whole(decoding, outbox), outbox)
        async for response in outbox.responses():
            yield response

    async def Explain(self, request: explain_pb2.ExplainRequest, context: Any) -> explain_pb2.ExplainResponse:
        call = call_context.current()
        call_context.on_call_end(self._parts.permits.enter(call.caller).give_back)
        await self._greet(context, call)
        async with self._explaining.turn():
            return await explain(
                request,
                self._parts.engine,
                self._parts.voices,
                self._parts.dictionaries,
                call,
                call.caller.text_limit(self._parts.max_text_chars),
                MAX_UNARY_AUDIO_BYTES,
            )

    async def GetCapabilities(
        self, request: text_to_speech_service_pb2.GetCapabilitiesRequest, context: Any
    ) -> text_to_speech_service_pb2.GetCapabilitiesResponse:
        info, call = self._parts.engine.info, call_context.current()
        timing = [info.model for info in self._parts.engine.infos if info.times_text]
        await self._greet(context, call)
        return text_to_speech_service_pb2.GetCapabilitiesResponse(
            model=info.model,
            models=[each.model for each in self._parts.engine.infos],
            server_version=__version__,
            native_sample_rate_hz=info.sample_rate_hz,
            sample_rates_hz=RATES_HZ,
            encodings=served_encodings(),
            languages=info.languages,
            supports_cloning=any(info.task == "base" for info in self._parts.engine.infos),
            supports_design=any(info.task == "voice_design" for info in self._parts.engine.infos),
            timestamp_modes=[
                synthesis_pb2.TIMESTAMP_MODE_PROGRESS,
                *([synthesis_pb2.TIMESTAMP_MODE_WORD] if timing else []),
            ],
            word_timing_models=timing,
            max_text_chars=call.caller.text_limit(self._parts.max_text_chars),
            max_utterances_per_session=MAX_OPEN_UTTERANCES,
            max_text_chars_per_minute=call.caller.max_text_chars_per_minute or 0,
            max_sessions=self._parts.permits.limit(call.caller),
            active_sessions=self._parts.permits.num_on_host,
            max_streams=info.max_streams,
            active_streams=self._parts.engine.num_streams,
            max_segment_chars=info.max_segment_chars,
            text_formats=text_formats(call.caller.text_format),
        )

    async def GetUsage(
        self, request: text_to_speech_service_pb2.GetUsageRequest, context: Any
    ) -> text_to_speech_service_pb2.GetUsageResponse:
        call = call_context.current()
        await self._greet(context, call)
        return await usage(call.caller, self._parts)

    async def _whole_text(self, request: Any, max_lead_ms: int, caller: Caller, *, whole: bool) -> Utterance:
        """Check and admit a request that has its whole text, and return its utterance with all text pushed.

        `whole`: the response has the whole audio, too.
        """
        limit = caller.text_limit(self._parts.max_text_chars)
        check_whole(request.text, limit, "text")
        timestamps = check_timestamps(request.timestamps, "timestamps")
        scheduling = check_scheduling(request.scheduling, "scheduling")
        spec = check_synthesis(
            request.config,
            await self._parts.voices.choose(request.config.voice, "config.voice", caller, scheduling.max_wait_s),
            self._parts.engine,
            "config",
            non_streaming_default=None,
            whole=whole,
            default_format=caller.text_format,
        )
        spec = spec.over(*await self._parts.dictionaries.named(request.config, "config", caller))
        spec = replace(spec, timestamps=timestamps, scheduling=scheduling)
        if (too_slow := spec.why_too_slow(max_lead_ms)) is not None:
            raise too_slow
        allowance, arrived_s = self._parts.allowance(caller), call_context.current().arrived_s
        beginning = Beginning(Playout(), max_lead_ms, whole=whole, arrived_s=arrived_s)
        utterance = Utterance("", spec, allowance, beginning)
        call_context.on_call_end(utterance.abort)
        self._admit(caller)
        await self._parts.limits.enter(caller, call_context.on_call_end)
        await self._parts.limits.prepare(caller, len(request.text))
        utterance.accept(request.text)
        for piece in slices(request.text):
            await allowance.part.do(utterance.push, piece)
        await allowance.part.do(utterance.end)
        return utterance

    def _admit(self, caller: Caller, *, resuming: bool = False) -> None:
        """Take a place for this call. Until the engine has served, calls are refused: a session that was taken earlier
        would lose the utterances that it brings along."""
        self._has_served = self._has_served or self._parts.engine.state is EngineState.READY
        if not self._has_served:
            raise EngineUnavailable(f"the engine is {self._parts.engine.state}; try again later, or on another server")
        call_context.on_call_end(self._parts.permits.enter(caller, resuming=resuming).give_back)

    def _run(self, work: Coroutine[Any, Any, None], outbox: Outbox[Any]) -> None:
        """Run `work` in a task, which is cancelled when the call is over."""
        try:
            task = self._parts.tasks.create_task(work)
        except RuntimeError:  # the group has ended: the server stops at once, and this call came in the last moment
            work.close()
            raise Draining("the server stops; connect to another one, or try again later") from None

        def leave(_call: object) -> None:
            outbox.abandon()
            task.add_done_callback(_forget_cancellation)
            task.cancel()

        # Not in a `finally`: if the call ends during a write, the method's generator is closed only by the garbage
        # collector.
        call_context.on_call_end(leave)

    async def _greet(self, context: Any, call: CallContext, *more: tuple[str, str]) -> None:
        """Send the initial metadata first: clients wait for it, and it tells them that the call was admitted."""
        await context.send_initial_metadata(
            (("x-request-id", call.request_id), ("x-model", self._parts.engine.info.model), *more)
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
    """Break the reference cycle of a cancelled task: it keeps its error, whose traceback keeps all its frames."""
    try:
        task.exception()
    except asyncio.CancelledError as error:
        error.__traceback__ = None
