"""The life of one `Speak` call: what its messages mean, and whose turn it is to be spoken.

Three tasks: one reads (and never waits for audio), one speaks the utterances in turn, one watches for silence. All of
them live in one task group, which ends with the call. Responses leave through the outbox.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import ParamSpec

from engine import EnginePool, FinishReason, InvalidSynthesis
from service.calls import END_OF_REQUESTS_S
from service.errors import ConfigRequired, Draining, InvalidField, LimitReached, RequestError
from service.outbox import Outbox
from service.playback import Playback
from service.progress import DEFAULT_MS_PER_UNIT
from service.requests import SpeakSpec, check_speak_config, check_utterance_id
from service.status import is_expected, to_status
from service.utterance import Message, Utterance
from service.voice_choice import VoiceChooser
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2

log = logging.getLogger(__name__)

MAX_OPEN_UTTERANCES = 32
MAX_REMEMBERED = 256  # ids of utterances that are over

P = ParamSpec("P")

_PAYLOADS: dict[type[Message], str] = {
    synthesis_pb2.UtteranceStarted: "started",
    audio_pb2.AudioChunk: "audio",
    synthesis_pb2.Marks: "marks",
    speak_pb2.FlushDone: "flush_done",
    synthesis_pb2.UtteranceDone: "done",
    synthesis_pb2.Warning: "warning",
}


class Session:
    """One owner of all its state, on one event loop."""

    def __init__(
        self,
        engine: EnginePool,
        voices: VoiceChooser,
        session_id: str,
        request_id: str,
        max_text_chars: int,
        take_text: Callable[[int], None],
    ) -> None:
        """`take_text` is told of each text; with a LimitReached it refuses to have so many characters spoken now."""
        self.outbox = Outbox()
        self._engine = engine
        self._voices = voices
        self._session_id = session_id
        self._request_id = request_id
        self._max_text_chars = max_text_chars
        self._take_text = take_text
        self._playback = Playback()
        self._spec: SpeakSpec | None = None  # sticky
        self._configured = asyncio.Event()
        self._open: dict[str, Utterance] = {}  # in the order of creation; the first one is, or will be, spoken
        self._current: str | None = None  # what "" means, until its `end` or `cancel`
        self._over: deque[str] = deque(maxlen=MAX_REMEMBERED)  # ids of past utterances
        self._warned: set[str] = set()  # ids for which text came too late
        self._num_minted = 0
        self._commit_timers: dict[str, asyncio.TimerHandle] = {}  # of utterances whose text pauses
        self._ms_per_unit = DEFAULT_MS_PER_UNIT  # as fast as the last utterance
        self._failures: dict[str, Exception] = {}  # why an utterance was stopped, if not by a cancel
        self._speaking: tuple[str, asyncio.Task[None]] | None = None
        self._changed = asyncio.Event()  # there is an utterance to speak, or there will be none
        self._finishing = False  # no more requests
        self._draining = False
        self._last_message_s = time.monotonic()

    async def run(self, requests: AsyncGenerator[speak_pb2.SpeakRequest, None]) -> None:
        """Until all is said and the requests have ended. Errors go out through the outbox."""
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read(requests))
                watch = tasks.create_task(self._watch_idle())
                await self._speak_in_turn(tasks)
                reader.cancel()
                watch.cancel()
        except* Exception as errors:
            self.outbox.close(errors.exceptions[0])
            errors.__traceback__ = None  # with the frame that raised it, it is a cycle
        else:
            self.outbox.close()
        finally:
            for utterance in self._open.values():
                utterance.abort()
            for timer in self._commit_timers.values():
                timer.cancel()

    def go_away(self, drain_ms: int) -> None:
        """The server drains: what is open is finished, nothing new is begun."""
        self._draining = True
        if self._spec is not None:
            self.outbox.post(speak_pb2.SpeakResponse(go_away=speak_pb2.GoAway(drain_ms=drain_ms)))
        self._changed.set()

    # Reading.

    async def _read(self, requests: AsyncGenerator[speak_pb2.SpeakRequest, None]) -> None:
        async with aclosing(requests):
            async for request in requests:
                self._last_message_s = time.monotonic()
                if request.WhichOneof("payload") == "config":
                    await self._configure(request.config)
                else:
                    self._take(request)
        await asyncio.sleep(END_OF_REQUESTS_S)
        if self._spec is None:
            raise ConfigRequired("the call ended without any message; begin with config")
        self._finish()

    def _take(self, request: speak_pb2.SpeakRequest) -> None:
        payload = request.WhichOneof("payload")
        if self._spec is None:
            raise ConfigRequired(
                f'the first message must be config, not {payload or "empty"}; {{"config": {{}}}} will do'
            )
        if payload is None:
            raise InvalidField("payload", "set one of config, text, flush, end, cancel, playback")
        if payload == "cancel" and request.utterance_id == "*":
            self._cancel_all(request.cancel)
            return
        check_utterance_id(request.utterance_id)
        if payload == "playback":
            self._report(request.utterance_id, request.playback.played_ms)
            return
        utterance_id = request.utterance_id or self._current
        if payload == "text":
            self._push_text(utterance_id, request.text)
            return
        if payload == "cancel":
            utterance_id = utterance_id or next(reversed(self._open), None)
            if utterance_id in self._open:
                self._open[utterance_id].silence(_played_ms(request.cancel))
            self._heard_no_more(utterance_id)
        if payload != "flush" and utterance_id == self._current:
            self._current = None
        utterance = self._open.get(utterance_id) if utterance_id else None
        if utterance is None or (payload == "flush" and utterance.ended):
            self._warn_inactive(utterance_id, payload)
        elif payload == "flush":
            self._tell(utterance, utterance.flush, request.flush.flush_id, request.flush.pause_ms)
        elif payload == "end":
            self._tell(utterance, utterance.end)
        else:
            self._stop(utterance, None)

    async def _configure(self, config: speak_pb2.SpeakConfig) -> None:
        choice = await self._voices.choose(config.synthesis.voice, "config.synthesis.voice")
        spec = check_speak_config(config, choice, self._engine)
        if self._spec is None:
            started = speak_pb2.SessionStarted(
                session_id=self._session_id,
                model=spec.utterance.info.model,
                audio=spec.utterance.audio.to_proto(),
                max_utterance_chars=self._max_text_chars,
                max_lead_ms=spec.max_lead_ms,
                idle_timeout_ms=round(spec.idle_timeout_s * 1000),
            )
            self.outbox.post(speak_pb2.SpeakResponse(session=started))
            self._spec = spec
            self._configured.set()
        else:
            self._spec = SpeakSpec(spec.utterance, self._spec.max_lead_ms, self._spec.idle_timeout_s)

    def _push_text(self, utterance_id: str | None, text: str) -> None:
        utterance = self._open.get(utterance_id) if utterance_id else None
        if utterance_id and (utterance_id in self._over if utterance is None else utterance.ended):
            if utterance_id not in self._warned:
                self._warned.add(utterance_id)
                self._warn_inactive(utterance_id, "text")
            return
        if utterance is None:
            utterance = self._begin(utterance_id or self._mint())
        if utterance is not None:
            self._tell(utterance, self._push, utterance, text)
            self._commit_later(utterance)

    def _push(self, utterance: Utterance, text: str) -> None:
        utterance.push_text(text)
        self._take_text(len(text))  # now that it is known to be good: what is refused costs nothing

    def _commit_later(self, utterance: Utterance) -> None:
        """Once no text has come for as long as its policy says."""
        delay_s = utterance.spec.policy.max_buffer_delay_s
        if delay_s is None:
            return
        if timer := self._commit_timers.pop(utterance.id, None):
            timer.cancel()
        if utterance.id in self._open:
            commit = utterance.commit_tail
            self._commit_timers[utterance.id] = asyncio.get_running_loop().call_later(
                delay_s, self._tell, utterance, commit
            )

    def _tell(self, utterance: Utterance, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Change the text side; what cannot be done ends this utterance alone."""
        try:
            act(*args, **kwargs)
        except (RequestError, InvalidSynthesis) as error:
            self._stop(utterance, error)

    def _begin(self, utterance_id: str) -> Utterance | None:
        assert self._spec is not None, "text comes after config"
        utterance = Utterance(
            utterance_id,
            self._spec.utterance,
            self._engine,
            self._playback,
            self._spec.max_lead_ms,
            self._max_text_chars,
            self._ms_per_unit,
        )
        self._current = utterance_id
        self._open[utterance_id] = utterance
        self._changed.set()
        if self._draining:
            self._stop(utterance, Draining("the server is draining: open a new session for the next utterance"))
            return None
        if len(self._open) > MAX_OPEN_UTTERANCES:
            limit = LimitReached("utterances", f"{MAX_OPEN_UTTERANCES} utterances are open; wait for one to be done")
            self._stop(utterance, limit)
            return None
        return utterance

    def _mint(self) -> str:
        while True:
            self._num_minted += 1
            utterance_id = f"u{self._num_minted}"
            if utterance_id not in self._open and utterance_id not in self._over:
                return utterance_id

    def _cancel_all(self, cancel: speak_pb2.Cancel) -> None:
        self._current = None
        if not self._open:
            self._warn_inactive(None, "cancel")
        played_ms = _played_ms(cancel)
        for utterance in self._open.values():  # the first one is in play
            utterance.silence(played_ms)
            played_ms = None
        self._heard_no_more("*")
        for utterance in list(self._open.values()):
            self._stop(utterance, None)

    def _report(self, utterance_id: str, played_ms: int) -> None:
        self._playback.report(utterance_id, played_ms)
        spoken = next(iter(self._open.values()), None)
        about = self._open.get(utterance_id) if utterance_id else spoken
        if about is not None:
            about.played_ms = played_ms
        if spoken is not None:
            spoken.playback_changed()

    def _heard_no_more(self, utterance_id: str | None) -> None:
        """The client drops what it has buffered, perhaps of an utterance that is over here: the next may go sooner."""
        self._playback.drop(utterance_id or "")
        for utterance in self._open.values():
            utterance.playback_changed()

    def _warn_inactive(self, utterance_id: str | None, payload: str) -> None:
        which = f"utterance {utterance_id!r} has ended or was never opened" if utterance_id else "no utterance is open"
        warning = synthesis_pb2.Warning(code="NO_ACTIVE_UTTERANCE", message=f"{payload} was ignored: {which}")
        self.outbox.post(speak_pb2.SpeakResponse(utterance_id=utterance_id or "", warning=warning))

    def _finish(self) -> None:
        self._finishing = True
        for utterance in list(self._open.values()):
            self._tell(utterance, utterance.end)
        self._changed.set()

    # Speaking.

    async def _speak_in_turn(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            if self._open:
                utterance = next(iter(self._open.values()))
                task = tasks.create_task(self._speak(utterance))
                self._speaking = (utterance.id, task)
                try:
                    await asyncio.wait([task])
                finally:
                    self._speaking = None
                if task.cancelled():
                    self._done(utterance, self._failures.pop(utterance.id, None))
            elif self._finishing or self._draining:
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    async def _speak(self, utterance: Utterance) -> None:
        try:
            async with aclosing(utterance.messages()) as messages:
                async for message in messages:
                    if isinstance(message, synthesis_pb2.UtteranceDone):
                        self._forget(utterance)
                    payload = _PAYLOADS[type(message)]
                    response = speak_pb2.SpeakResponse(utterance_id=utterance.id, **{payload: message})
                    try:
                        await self.outbox.send(response)
                    except asyncio.CancelledError:
                        if payload == "audio" and self.outbox.has_taken(response):
                            utterance.handed_over(message.num_samples)
                        raise
                    if payload == "audio":
                        self._prefill()
        except Exception as error:
            if not is_expected(error):
                log.exception("utterance failed", extra={"request_id": self._request_id, "utterance_id": utterance.id})
            self._done(utterance, error)

    def _prefill(self) -> None:
        """Let the engine go on with what is spoken next once it has made all that is spoken now."""
        for utterance in list(self._open.values()):
            try:
                if not utterance.prefill():
                    return
            except InvalidSynthesis as error:
                self._stop(utterance, error)
                return

    def _stop(self, utterance: Utterance, error: Exception | None) -> None:
        """Cancelled, or failed from the text side: `done` comes as soon as its task, if it has one, let go."""
        if self._speaking is not None and self._speaking[0] == utterance.id:
            if error is not None:
                self._failures[utterance.id] = error
            self._speaking[1].cancel()
        else:
            self._done(utterance, error)

    def _done(self, utterance: Utterance, error: Exception | None) -> None:
        """The end of an utterance that did not come to `done` by itself."""
        self._forget(utterance)
        if error is None:
            done = synthesis_pb2.UtteranceDone(reason=synthesis_pb2.FINISH_REASON_CANCELLED)
        else:
            done = synthesis_pb2.UtteranceDone(
                reason=synthesis_pb2.FINISH_REASON_FAILED, error=to_status(error, self._request_id)
            )
        done.stats.CopyFrom(utterance.stats(FinishReason.CANCELLED))
        utterance.abort()
        self.outbox.post(speak_pb2.SpeakResponse(utterance_id=utterance.id, done=done))

    def _forget(self, utterance: Utterance) -> None:
        del self._open[utterance.id]
        if timer := self._commit_timers.pop(utterance.id, None):
            timer.cancel()
        self._ms_per_unit = utterance.progress.ms_per_unit
        if len(self._over) == MAX_REMEMBERED:
            self._warned.discard(self._over[0])
        self._over.append(utterance.id)

    # Silence.

    async def _watch_idle(self) -> None:
        """End the session as a half-close would when nothing comes in and nothing plays."""
        await self._configured.wait()
        assert self._spec is not None, "configured"
        while True:
            quiet_s = max(self._last_message_s, self._playback.ends_s)
            wait_s = quiet_s + self._spec.idle_timeout_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            else:
                self._last_message_s = time.monotonic()
                self._finish()


def _played_ms(cancel: speak_pb2.Cancel) -> int | None:
    return cancel.played_ms if cancel.HasField("played_ms") else None
