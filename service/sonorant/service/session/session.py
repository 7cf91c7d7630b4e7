"""One `Speak` call: handles its messages, and runs its tasks.

The first task takes the config, then speaks the utterances in turn. Another one reads all that comes after, and never
waits for audio; a timer ends idle sessions. The tasks are in one group, which ends with the call. Responses leave
through the outbox.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from sonorant.engine import EngineError
from sonorant.service.access.api_keys import unknown_key
from sonorant.service.calls.context import CallContext
from sonorant.service.calls.requests import END_OF_REQUESTS_S
from sonorant.service.errors import ConfigRequired, Draining, InvalidField, LimitReached, RequestError
from sonorant.service.pacing.outbox import Outbox
from sonorant.service.pacing.pacer import Playout
from sonorant.service.session.config import check_utterance_id
from sonorant.service.session.configured import Configured
from sonorant.service.session.keepalive import Keepalive, Keepalives
from sonorant.service.session.parts import Parts
from sonorant.service.session.turns import OpenUtterance, Turns
from sonorant.service.text.checks import slices
from sonorant.service.utterance.requests import UtteranceSpec
from sonorant.service.utterance.resumption import Resumption, check_resume
from sonorant.service.utterance.utterance import Beginning, Utterance
from sonorant.tts.v1 import speak_pb2, synthesis_pb2

MAX_OPEN_UTTERANCES = 32
ALL = "*"  # in `cancel`: every utterance


class ServedSession:
    """Owns all state of the session. Belongs to one event loop."""

    def __init__(self, call: CallContext, parts: Parts, keepalives: Keepalives, *, resuming: bool) -> None:
        """`resuming`: the call continues another one, which may have named what is gone now."""
        self.outbox: Outbox[speak_pb2.SpeakResponse] = Outbox()
        self._call = call
        self._parts = parts
        self._allowance = parts.allowance(call.caller)
        self._configured = Configured(call.caller, parts, resuming=resuming)
        self._playout = Playout()
        self._turns = Turns(self.outbox, call.request_id, self._allowance.part)
        self._current_id: str | None = None  # what "" means, until its `end` or `cancel`
        self._num_minted = 0
        self._tasks: asyncio.TaskGroup | None = None  # while the session runs
        self._idle_timer: asyncio.TimerHandle | None = None
        self._drain_ms: int | None = None  # set while the server drains
        self._last_message_s = time.monotonic()
        self._begun = asyncio.Event()
        self._takes = False  # whether a message is being handled: its text may wait for its turn
        self._keepalives = keepalives
        self._keepalive: Keepalive | None = None  # set if the client asked for keepalives

    async def run(self, requests: AsyncGenerator[speak_pb2.SpeakRequest, None]) -> None:
        """Run until the requests have ended and all is spoken. Errors go out through the outbox."""
        try:
            async with aclosing(requests), asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._turns.enter(tasks)
                await self._begin(requests)
                self._begun.set()
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
            if self._keepalive is not None:
                self._keepalives.forget(self._keepalive)
            self._turns.abort()

    async def begun(self, within_s: float) -> None:
        """Wait until the first message has been taken, but not longer than so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._begun.wait()

    def go_away(self, drain_ms: int) -> None:
        """Handle a drain of the server: tell the client, finish open utterances, and begin no new ones.

        If there is no config yet, the client is told after `SessionStarted`.
        """
        self._drain_ms = drain_ms
        if self._configured.session is not None:
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
        await self._finish()

    async def _take(self, request: speak_pb2.SpeakRequest) -> None:
        self._takes = True
        if self._keepalive is not None:
            self._keepalives.follow(self._keepalive)
        payload = request.WhichOneof("payload")
        if self._configured.session is None and payload != "config":
            raise ConfigRequired(
                f'the first message must be config, not {payload or "empty"}; {{"config": {{}}}} will do'
            )
        is_all = payload == "cancel" and request.utterance_id == ALL
        if request.utterance_id and payload != "config" and not is_all:
            check_utterance_id(request.utterance_id)
        wanted = request.utterance_id or self._current_id
        match payload:
            case "config":
                await self._configure(request.config)
            case "resume":
                await self._resume(request.utterance_id, request.resume)
            case "text":
                entry = await self._text(wanted or None, request.text)
                if entry is not None and not entry.asked:
                    await self._start(entry)
            case "revise":
                await self._revise(wanted, request.revise)
            case "flush":
                await self._flush(wanted, request.flush)
            case "end":
                await self._end(wanted)
            case "cancel" if is_all:
                self._cancel_all(request.cancel)
            case "cancel":
                self._cancel(wanted, request.cancel)
            case "playback":
                self._report(request.utterance_id, request.playback.played_ms)
            case _:
                raise InvalidField("payload", "set one of config, text, flush, end, cancel, playback, resume, revise")
        self._takes = False
        self._last_message_s = time.monotonic()

    async def _configure(self, config: speak_pb2.SpeakConfig) -> None:
        if (spec := await self._configured.take(config)) is None:
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
        )
        self.outbox.put(speak_pb2.SpeakResponse(session=started))  # the first one, but not written yet
        self._watch_idle()
        if spec.max_silence_s is not None:
            self._keepalive = Keepalive(self.outbox, _sign, spec.max_silence_s, self._is_open)
        if self._drain_ms is not None:
            self._say_go_away()
        if config.HasField("opening"):
            await self._take_opening(config.opening)
        self.outbox.wake()

    async def _take_opening(self, opening: speak_pb2.Opening) -> None:
        """Take the text that came with the config."""
        check_utterance_id(opening.utterance_id)
        await self._text(opening.utterance_id or None, opening.text, arrived_s=self._call.arrived_s)
        if opening.end:
            await self._end(opening.utterance_id or self._current_id)
        if (entry := self._turns.current) is not None:
            await self._start(entry)

    async def _resume(self, utterance_id: str, resume: speak_pb2.Resume) -> None:
        """Resume an utterance. If that fails, only this utterance ends."""
        try:
            spec = await self._configured.resumed(resume.replay)
            resumption = await self._allowance.part.do(
                check_resume, resume, spec.info, spec.params.sampling.max_frames, spec.audio, spec.receipts
            )
            if not utterance_id or utterance_id in self._turns.open or utterance_id in self._turns.over:
                raise InvalidField("utterance_id", "resume an utterance under its own id, before anything else of it")
            if resumption.played_ms is not None:
                self._playout.sent(utterance_id, resumption.received_ms(spec.audio.sample_rate_hz))
                self._playout.report(utterance_id, resumption.played_ms)
            self._open(utterance_id, spec, resumption)
        except (RequestError, EngineError) as error:
            self._turns.stop(self._turns.open.get(utterance_id) or self._open(utterance_id), error)

    async def _text(self, wanted: str | None, text: str, arrived_s: float | None = None) -> OpenUtterance | None:
        """Return the utterance that takes the text, if one does. `arrived_s`: when the call arrived, if the text came
        with it."""
        if self._allowance.charge is not None:
            await self._parts.limits.prepare(self._call.caller, len(text))
        entry = None if wanted is None else self._turns.open.get(wanted)
        if wanted in self._turns.over if entry is None else (entry.stopped or entry.utterance.segmenter.ended):
            assert wanted is not None, "it is over"
            if self._turns.is_first_late_text(wanted):
                self._warn_inactive(wanted, "text")
            return None
        if entry is None:
            entry = self._open(wanted, arrived_s=arrived_s)
        self._turns.change(entry, entry.utterance.accept, text)
        await self._turns.push(entry, slices(text))
        return entry

    async def _start(self, entry: OpenUtterance) -> None:
        """Have the stream of the first text opened now, and not some steps of the event loop later, if it is the turn
        of the utterance."""
        if entry.speaking is not None:
            entry.asked = True
            await self._turns.part.do(self._turns.change, entry, entry.utterance.start)

    async def _revise(self, wanted: str | None, revise: speak_pb2.Revise) -> None:
        if self._allowance.charge is not None:
            await self._parts.limits.prepare(self._call.caller, len(revise.text))
        if (entry := self._taking_text(wanted, "revise")) is not None:
            rest: list[str] = []
            await self._turns.part.do(self._turns.change, entry, self._revise_now, entry, revise, rest)
            await self._turns.push(entry, rest)

    def _revise_now(self, entry: OpenUtterance, revise: speak_pb2.Revise, rest: list[str]) -> None:
        revised, text = entry.utterance.revise(revise.from_char, revise.text)
        rest += slices(text)
        self.outbox.post(speak_pb2.SpeakResponse(utterance_id=entry.id, revised=revised))

    async def _flush(self, wanted: str | None, flush: speak_pb2.Flush) -> None:
        if (entry := self._taking_text(wanted, "flush")) is not None:
            act = partial(entry.utterance.flush, flush.flush_id, flush.pause_ms, carries_on=flush.carry_on)
            await self._turns.part.do(self._turns.change, entry, act)

    async def _end(self, wanted: str | None) -> None:
        self._leave(wanted)
        if (entry := self._turns.open.get(wanted or "")) is None:
            self._warn_inactive(wanted, "end")
        else:
            await self._turns.part.do(self._turns.change, entry, entry.utterance.end)

    def _cancel(self, wanted: str | None, cancel: speak_pb2.Cancel) -> None:
        entry = self._turns.open.get(wanted) if wanted else self._turns.latest
        if entry is not None:
            wanted = entry.id
            entry.utterance.statistics.silenced(_played_ms(cancel))
        self._heard_no_more(wanted or "")
        self._leave(wanted)
        if entry is None:
            self._warn_inactive(wanted, "cancel")
        else:
            self._turns.stop(entry)

    def _cancel_all(self, cancel: speak_pb2.Cancel) -> None:
        self._current_id = None
        if not self._turns.open:
            self._warn_inactive(None, "cancel")
        played_ms = _played_ms(cancel)
        for entry in self._turns:  # the first one is in play
            entry.utterance.statistics.silenced(played_ms)
            played_ms = None
        self._heard_no_more(ALL)
        for entry in self._turns:
            self._turns.stop(entry)

    def _report(self, utterance_id: str, played_ms: int) -> None:
        self._playout.report(utterance_id, played_ms)
        spoken = self._turns.current
        about = self._turns.open.get(utterance_id) if utterance_id else spoken
        if about is not None:
            about.utterance.statistics.played_ms = played_ms
        if spoken is not None:
            spoken.utterance.pacer.changed()

    async def _finish(self) -> None:
        """End all open utterances' texts, as no more messages come."""
        for entry in self._turns:
            await self._turns.part.do(self._turns.change, entry, entry.utterance.end)
        self._turns.close()

    def _heard_no_more(self, utterance_id: str) -> None:
        """Note that the client drops buffered audio, even of a done utterance, so that the next may go sooner."""
        self._playout.drop(utterance_id)
        for entry in self._turns:
            entry.utterance.pacer.changed()

    def _open(
        self,
        utterance_id: str | None = None,
        spec: UtteranceSpec | None = None,
        resumption: Resumption | None = None,
        arrived_s: float | None = None,
    ) -> OpenUtterance:
        """Open an utterance; by default with the session's config, and with an id that was not lately there."""
        session = self._configured.session
        assert session is not None, "text comes after config"
        beginning = Beginning(
            self._playout,
            session.max_lead_ms,
            self._turns.ms_per_unit,
            resumption,
            follows=bool(self._turns.open or self._turns.over),
            arrived_s=arrived_s,
        )
        wanted, gone = (self._configured.utterance, self._configured.gone) if spec is None else (spec, None)
        self._current_id = self._minted_id() if utterance_id is None else utterance_id
        entry = self._turns.begin(Utterance(self._current_id, wanted, self._allowance, beginning))
        if error := self._refusal(gone or wanted.why_too_slow(session.asked_lead_ms)):
            self._turns.stop(entry, error)
        return entry

    def _minted_id(self) -> str:
        """Return an id that no utterance of the session lately had."""
        while True:
            self._num_minted += 1
            minted = f"u{self._num_minted}"
            if minted not in self._turns.open and minted not in self._turns.over:
                return minted

    def _refusal(self, fault: RequestError | None) -> RequestError | None:
        """Return why the utterance that was just opened is not spoken, if it is not. `fault`: of what it wants."""
        keys = self._parts.keys
        if keys is not None and not keys.has(self._call.caller):
            return unknown_key()
        if self._drain_ms is not None:
            return Draining("the server is draining: open a new session for the next utterance")
        if fault is None and len(self._turns.open) > MAX_OPEN_UTTERANCES:
            return LimitReached("utterances", f"{MAX_OPEN_UTTERANCES} utterances are open; wait for one to be done")
        return fault

    def _leave(self, utterance_id: str | None) -> None:
        """ "" no longer means this utterance."""
        if utterance_id == self._current_id:
            self._current_id = None

    def _taking_text(self, wanted: str | None, payload: str) -> OpenUtterance | None:
        """Return the utterance if it still takes text; else warn the client."""
        entry = self._turns.open.get(wanted or "")
        if entry is None or entry.utterance.segmenter.ended:
            self._warn_inactive(wanted, payload)
            return None
        return entry

    def _warn_inactive(self, utterance_id: str | None, payload: str) -> None:
        which = f"utterance {utterance_id!r} has ended or was never opened" if utterance_id else "no utterance is open"
        warning = synthesis_pb2.Warning(code="NO_ACTIVE_UTTERANCE", message=f"{payload} was ignored: {which}")
        self.outbox.post(speak_pb2.SpeakResponse(utterance_id=utterance_id or "", warning=warning))

    def _is_open(self) -> bool:
        """Return whether the client waits for something: an open utterance, or text that waits for its turn."""
        return self._takes or bool(self._turns.open)

    def _say_go_away(self) -> None:
        self.outbox.post(speak_pb2.SpeakResponse(go_away=speak_pb2.GoAway(drain_ms=self._drain_ms or 0)))
        self._turns.close()

    def _watch_idle(self) -> None:
        """End the session, as a half-close would, once nothing has come in or played for the idle timeout."""
        assert self._configured.session is not None, "it is configured"
        idle_timeout_s = self._configured.session.idle_timeout_s
        wait_s = max(self._last_message_s, self._playout.ends_s) + idle_timeout_s - time.monotonic()
        if wait_s <= 0:
            self._last_message_s = time.monotonic()
            if not self._takes:
                assert self._tasks is not None, "it runs"
                self._tasks.create_task(self._finish())
            wait_s = idle_timeout_s
        self._idle_timer = asyncio.get_running_loop().call_later(wait_s, self._watch_idle)


def _sign() -> speak_pb2.SpeakResponse:
    return speak_pb2.SpeakResponse(alive=speak_pb2.Alive())


def _played_ms(cancel: speak_pb2.Cancel) -> int | None:
    return cancel.played_ms if cancel.HasField("played_ms") else None
