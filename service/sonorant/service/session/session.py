"""One `Speak` call: handles its messages, and runs its tasks.

The first task takes the config, then speaks the utterances in turn. Another one reads all that comes after, and never
waits for audio; a timer ends idle sessions. The tasks are in one group, which ends with the call. Responses leave
through the outbox.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from sonorant.engine import EngineError
from sonorant.service.admission.limits import Limits
from sonorant.service.calls.context import CallContext
from sonorant.service.calls.requests import END_OF_REQUESTS_S
from sonorant.service.dictionaries.dictionaries import Dictionaries
from sonorant.service.errors import ConfigRequired, InvalidField, RequestError
from sonorant.service.pacing.outbox import Outbox
from sonorant.service.pacing.playout import Playout
from sonorant.service.session.alive import Quiet, SignsOfLife
from sonorant.service.session.commands import Commands
from sonorant.service.session.turns import Turns
from sonorant.service.utterance.allowance import Allowance
from sonorant.service.utterance.receipts import Receipts
from sonorant.service.utterance.requests import SpeakSpec, check_speak_config, check_synthesis
from sonorant.service.utterance.resumption import check_resume
from sonorant.service.voices.choice import VoiceChooser
from sonorant.tts.v1 import speak_pb2


class Session:
    """Owns all state of the session. Belongs to one event loop."""

    def __init__(
        self,
        call: CallContext,
        allowance: Allowance,
        voices: VoiceChooser,
        dictionaries: Dictionaries,
        limits: Limits,
        signs: SignsOfLife,
        receipts: Receipts | None,
    ) -> None:
        self.outbox: Outbox[speak_pb2.SpeakResponse] = Outbox()
        self._call = call
        self._allowance = allowance
        self._voices = voices
        self._dictionaries = dictionaries
        self._limits = limits
        self._playout = Playout()
        self._turns = Turns(self.outbox, call.request_id, allowance.part)
        self._commands = Commands(self._turns, self._playout, self.outbox, allowance)
        self._spec: SpeakSpec | None = None  # from the first config
        self._tasks: asyncio.TaskGroup | None = None  # while the session runs
        self._idle_timer: asyncio.TimerHandle | None = None
        self._drain_ms: int | None = None  # set while the server drains
        self._last_message_s = time.monotonic()
        self._takes = False  # whether a message is being handled: its text may wait for its turn
        self._signs = signs
        self._receipts = receipts
        self._quiet: Quiet | None = None  # set if the client asked for signs of life

    async def run(self, requests: AsyncGenerator[speak_pb2.SpeakRequest, None]) -> None:
        """Run until the requests have ended and all is spoken. Errors go out through the outbox."""
        try:
            async with aclosing(requests), asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._turns.enter(tasks)
                await self._begin(requests)
                reader = tasks.create_task(self._read(requests))
                await self._turns.run()
                reader.cancel()
        except* Exception as errors:
            self.outbox.close(errors.exceptions[0])
            errors.__traceback__ = None  # breaks a cycle with the frames that raised it
        else:
            self.outbox.close()
        finally:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._tasks = None  # breaks a cycle: the group refers to its tasks, and they to this session
            if self._quiet is not None:
                self._signs.forget(self._quiet)
            self._turns.abort()

    def go_away(self, drain_ms: int) -> None:
        """Handle a drain of the server: tell the client, finish open utterances, and begin no new ones.

        If there is no config yet, the client is told after `SessionStarted`.
        """
        self._drain_ms = drain_ms
        self._commands.draining = True
        if self._spec is not None:
            self._say_go_away()

    async def _begin(self, requests: AsyncGenerator[speak_pb2.SpeakRequest, None]) -> None:
        """Take the config. Until it has come there is nothing to speak, so this needs no task of its own."""
        first = await anext(requests, None)
        if first is None:
            await asyncio.sleep(END_OF_REQUESTS_S)
            raise ConfigRequired("the call ended without any message; begin with config")
        await self._take(first)

    async def _read(self, requests: AsyncGenerator[speak_pb2.SpeakRequest, None]) -> None:
        async for request in requests:
            await self._take(request)
        await asyncio.sleep(END_OF_REQUESTS_S)
        await self._commands.finish()

    async def _take(self, request: speak_pb2.SpeakRequest) -> None:
        self._takes = True
        if self._quiet is not None:
            self._signs.follow(self._quiet)
        payload = request.WhichOneof("payload")
        if self._spec is None and payload != "config":
            raise ConfigRequired(
                f'the first message must be config, not {payload or "empty"}; {{"config": {{}}}} will do'
            )
        match payload:
            case "config":
                await self._configure(request.config)
            case "resume":
                await self._resume(request.utterance_id, request.resume)
            case "text":
                await self._limits.prepare(self._call.caller, len(request.text))
                await self._commands.text(request.utterance_id, request.text)
            case "revise":
                await self._limits.prepare(self._call.caller, len(request.revise.text))
                await self._commands.revise(request.utterance_id, request.revise)
            case "flush":
                await self._commands.flush(request.utterance_id, request.flush)
            case "end":
                await self._commands.end(request.utterance_id)
            case "cancel" if request.utterance_id == "*":
                self._commands.cancel_all(request.cancel)
            case "cancel":
                self._commands.cancel(request.utterance_id, request.cancel)
            case "playback":
                self._commands.report(request.utterance_id, request.playback.played_ms)
            case _:
                raise InvalidField("payload", "set one of config, text, flush, end, cancel, playback, resume, revise")
        self._takes = False
        self._last_message_s = time.monotonic()

    async def _configure(self, config: speak_pb2.SpeakConfig) -> None:
        choice = await self._voices.choose(config.synthesis.voice, "config.synthesis.voice", self._call.caller)
        spec = check_speak_config(config, choice, self._allowance.reservations.engine, self._call.caller.text_format)
        caller = self._call.caller
        named = await self._dictionaries.named(config.synthesis, "config.synthesis", caller)
        spec = replace(spec, utterance=replace(spec.utterance.over(*named), receipts=self._receipts))
        if self._spec is not None:
            if config.HasField("opening"):
                raise InvalidField("config.opening", "only the first config opens an utterance; send text")
            first = self._spec.utterance
            spoken = replace(spec.utterance, resumable=first.resumable, packs_codes=first.packs_codes)
            self._commands.spec = replace(self._spec, utterance=spoken)
            return
        started = speak_pb2.SessionStarted(
            session_id=self._call.session_id,
            model=spec.utterance.info.model,
            audio=spec.utterance.audio.to_proto(),
            max_utterance_chars=self._allowance.max_text_chars,
            max_lead_ms=spec.max_lead_ms,
            idle_timeout_ms=round(spec.idle_timeout_s * 1000),
            resumable=spec.utterance.resumable,
            max_silence_ms=round((spec.max_silence_s or 0) * 1000),
            takes_opening=True,
        )
        self.outbox.put(speak_pb2.SpeakResponse(session=started))  # the first one, but not written yet
        self._spec = self._commands.spec = spec
        self._watch_idle()
        if spec.max_silence_s is not None:
            self._quiet = Quiet(self.outbox, _sign, spec.max_silence_s, self._is_open)
        if self._drain_ms is not None:
            self._say_go_away()
        if config.HasField("opening"):
            opening = config.opening
            self._commands.arrived_s = self._call.arrived_s
            await self._limits.prepare(self._call.caller, len(opening.text))
            await self._commands.text(opening.utterance_id, opening.text)
            if opening.end:
                await self._commands.end(opening.utterance_id)
            await self._commands.start()
            self._commands.arrived_s = None
        self.outbox.wake()

    async def _resume(self, utterance_id: str, resume: speak_pb2.Resume) -> None:
        """Resume an utterance. If that fails, only this utterance ends."""
        assert self._spec is not None, "config came first"
        engine = self._allowance.reservations.engine
        try:
            choice = await self._voices.choose(resume.replay.voice, "resume.replay.voice", self._call.caller)
            spec = check_synthesis(resume.replay, choice, engine, "resume.replay", non_streaming_default=False)
            spec = spec.over(*await self._dictionaries.named(resume.replay, "resume.replay", self._call.caller))
            session = self._spec.utterance
            spec = replace(
                spec,
                warnings=(),
                timestamps=session.timestamps,
                resumable=session.resumable,
                receipts=session.receipts,
                packs_codes=session.packs_codes,
                policy=session.policy,
                scheduling=session.scheduling,
            )
            resumption = await self._allowance.part.do(
                check_resume, resume, spec.info, spec.params.sampling.max_frames, spec.audio, self._receipts
            )
            self._commands.resume(utterance_id, spec, resumption)
        except (RequestError, EngineError) as error:
            self._commands.refuse(utterance_id, error)

    def _is_open(self) -> bool:
        """Return whether the client waits for something: an open utterance, or text that waits for its turn."""
        return self._takes or len(self._turns) > 0

    def _say_go_away(self) -> None:
        self.outbox.post(speak_pb2.SpeakResponse(go_away=speak_pb2.GoAway(drain_ms=self._drain_ms or 0)))
        self._turns.close()

    def _watch_idle(self) -> None:
        """End the session, as a half-close would, once nothing has come in or played for the idle timeout."""
        assert self._spec is not None, "configured"
        wait_s = max(self._last_message_s, self._playout.ends_s) + self._spec.idle_timeout_s - time.monotonic()
        if wait_s <= 0:
            self._last_message_s = time.monotonic()
            if not self._takes:
                assert self._tasks is not None, "it runs"
                self._tasks.create_task(self._commands.finish())
            wait_s = self._spec.idle_timeout_s
        self._idle_timer = asyncio.get_running_loop().call_later(wait_s, self._watch_idle)


def _sign() -> speak_pb2.SpeakResponse:
    return speak_pb2.SpeakResponse(alive=speak_pb2.Alive())
