"""The open utterances of one session. They are spoken one after another, the oldest first."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec

from sonorant.engine import FinishReason, InvalidSynthesis
from sonorant.service.calls.loop_share import LoopAccess
from sonorant.service.pacing.outbox import Outbox
from sonorant.service.status import is_expected, to_status
from sonorant.service.utterance.delivery import Message
from sonorant.service.utterance.utterance import Utterance
from sonorant.service.utterance.word_times import DEFAULT_MS_PER_UNIT
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2

log = logging.getLogger(__name__)

P = ParamSpec("P")

MAX_REMEMBERED = 256  # ids of utterances that are done

PAYLOADS: dict[type[Message], str] = {
    synthesis_pb2.Queued: "queued",
    synthesis_pb2.UtteranceStarted: "started",
    audio_pb2.AudioChunk: "audio",
    synthesis_pb2.Marks: "marks",
    speak_pb2.FlushDone: "flush_done",
    synthesis_pb2.Warning: "warning",
}


@dataclass(slots=True, eq=False)
class OpenUtterance:
    """An utterance that is not done."""

    id: str
    utterance: Utterance
    speaking: asyncio.Task[None] | None = None  # set during its turn
    failure: Exception | None = None  # why it was stopped, if not by a cancel
    text_s: float = math.inf  # when all of its latest text was pushed, on the loop's clock; inf: that is not done
    commit_timer: asyncio.Handle | None = None  # looks whether no text has come for a while, ...
    look_s: float = math.inf  # ... at this time on the loop's clock; uvloop's handles do not tell it if it is now
    asked: bool = False  # whether its stream was asked for when its first text came
    stopped: bool = False  # cancelled or failed: done as soon as its task has ended
    warned: bool = False  # text came after its end, and the client was warned


class Turns:
    def __init__(self, outbox: Outbox[speak_pb2.SpeakResponse], request_id: str, part: LoopAccess) -> None:
        """`part`: the caller's share of the event loop, in which texts change and streams are opened ahead."""
        self.ms_per_unit = DEFAULT_MS_PER_UNIT  # speed of the last utterance; see `WordTimes`
        self._outbox = outbox
        self._request_id = request_id
        self.part = part
        self._prefills_soon = False  # whether `_prefill` is posted
        self.open: dict[str, OpenUtterance] = {}  # by id, in the order in which they are spoken
        self.over: dict[str, bool] = {}  # the latest done utterances: whether the client was warned of late text
        self._changed = asyncio.Event()  # there is an utterance to speak, or there will be none any more
        self._closing = False
        self._tasks: asyncio.TaskGroup | None = None  # of the session, while it runs

    def __iter__(self) -> Iterator[OpenUtterance]:
        """Iterate over a copy, so that utterances may be stopped meanwhile."""
        return iter(list(self.open.values()))

    @property
    def current(self) -> OpenUtterance | None:
        """The utterance that is being spoken, or will be next."""
        return next(iter(self.open.values()), None)

    @property
    def latest(self) -> OpenUtterance | None:
        return next(reversed(self.open.values()), None)

    def begin(self, utterance: Utterance) -> OpenUtterance:
        entry = self.open[utterance.id] = OpenUtterance(utterance.id, utterance)
        if self._tasks is not None and len(self.open) == 1:  # now, and not some steps of the event loop later
            entry.speaking = self._tasks.create_task(self._speak_to_the_end(entry))
        self._changed.set()
        return entry

    def is_first_late_text(self, utterance_id: str) -> bool:
        """Return whether this is the first text after the end of the utterance, and remember that it came."""
        if (entry := self.open.get(utterance_id)) is not None:
            was_warned, entry.warned = entry.warned, True
        else:
            was_warned, self.over[utterance_id] = self.over[utterance_id], True
        return not was_warned

    def close(self) -> None:
        """Let `run` return once all open utterances have been spoken."""
        self._closing = True
        self._changed.set()

    def change(self, entry: OpenUtterance, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Change an utterance's text. An error in that ends only this utterance."""
        if entry.stopped:
            return
        try:
            act(*args, **kwargs)
        except Exception as error:
            self._note(entry, error)
            self.stop(entry, error)

    async def push(self, entry: OpenUtterance, pieces: Iterable[str]) -> None:
        """Push text that was accepted, as the caller has a share of the event loop, and commit it if no more comes for
        a while. That is looked for now and then, as most text is followed by more."""
        entry.text_s = math.inf
        for piece in pieces:
            await self.part.do(self.change, entry, entry.utterance.push, piece)
        loop = asyncio.get_running_loop()
        entry.text_s = loop.time()
        if entry.stopped:
            return
        look_s = entry.text_s + entry.utterance.segmenter.least_delay_s
        if entry.commit_timer is not None and entry.look_s > look_s:  # other text had longer to wait
            entry.commit_timer.cancel()
            entry.commit_timer = None
        if entry.commit_timer is None:
            entry.look_s, entry.commit_timer = look_s, loop.call_at(look_s, self._look_for_tail, entry)

    def _look_for_tail(self, entry: OpenUtterance) -> None:
        entry.commit_timer = None
        delay_s = entry.utterance.segmenter.commit_delay_s
        if entry.stopped or delay_s is None or entry.text_s == math.inf:
            return
        loop, look_s = asyncio.get_running_loop(), entry.text_s + delay_s
        if loop.time() >= look_s:
            self.part.post(self._commit_tail, entry)
        else:
            entry.look_s, entry.commit_timer = look_s, loop.call_at(look_s, self._look_for_tail, entry)

    def _commit_tail(self, entry: OpenUtterance) -> None:
        if entry.stopped or entry.utterance.segmenter.commit_delay_s is None:  # it has ended meanwhile
            return
        self.change(entry, entry.utterance.commit_tail)
        if entry.utterance.spec.resumable:
            committed = speak_pb2.Committed(chars=entry.utterance.segmenter.num_chars)
            self._outbox.post(speak_pb2.SpeakResponse(utterance_id=entry.id, committed=committed))

    def stop(self, entry: OpenUtterance, error: Exception | None = None) -> None:
        """Stop an utterance because of a cancel or an error. `done` is sent as soon as its task, if any, has ended."""
        if entry.stopped:
            return
        entry.stopped = True
        if entry.speaking is None:
            self._done(entry, FinishReason.CANCELLED, error)
        else:
            entry.failure = error
            entry.speaking.cancel()

    def abort(self) -> None:
        """Release everything without sending anything, as the call is over."""
        self._tasks = None  # breaks a cycle: the group refers to its tasks, and they to this
        for entry in self.open.values():
            entry.stopped = True
            entry.utterance.abort()
            if entry.commit_timer is not None:
                entry.commit_timer.cancel()

    def enter(self, tasks: asyncio.TaskGroup) -> None:
        """Speak in tasks of this group from now on, until `abort`."""
        self._tasks = tasks

    async def run(self) -> None:
        while True:
            if (entry := self.current) is not None:
                await self._speak(entry)
            elif self._closing:
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    async def _speak(self, entry: OpenUtterance) -> None:
        if (speaking := entry.speaking) is None:
            assert self._tasks is not None, "it was entered"
            speaking = entry.speaking = self._tasks.create_task(self._speak_to_the_end(entry))
        try:
            await asyncio.wait([speaking])
        finally:
            entry.speaking = None  # breaks a cycle: the task refers to the entry
        if speaking.cancelled():
            failure, entry.failure = entry.failure, None
            self._done(entry, FinishReason.CANCELLED, failure)

    async def _speak_to_the_end(self, entry: OpenUtterance) -> None:
        try:
            reason = await entry.utterance.speak(partial(self._send, entry), partial(self._pass_place_on, entry))
        except Exception as error:
            self._note(entry, error)
            self._done(entry, FinishReason.CANCELLED, error)
        else:
            self._done(entry, reason)

    def _note(self, entry: OpenUtterance, error: Exception) -> None:
        """Log a bug. Other errors are the caller's, or told by the engine."""
        if not is_expected(error):
            log.error(
                "utterance failed",
                exc_info=error,
                extra={"request_id": self._request_id, "utterance_id": entry.id},
            )

    def _pass_place_on(self, entry: OpenUtterance) -> None:
        """Let the next utterance have the place of one that is over."""
        following = next((each for each in self.open.values() if each is not entry), None)
        if following is not None and not following.stopped:
            entry.utterance.pass_place_on(following.utterance, is_over=True)

    def _done(self, entry: OpenUtterance, reason: FinishReason, error: Exception | None = None) -> None:
        entry.stopped = True
        del self.open[entry.id]
        if entry.commit_timer is not None:
            entry.commit_timer.cancel()
        while len(self.over) >= MAX_REMEMBERED:
            del self.over[next(iter(self.over))]
        self.over[entry.id] = entry.warned
        self.ms_per_unit = entry.utterance.word_times.ms_per_unit
        done = entry.utterance.done(reason, to_status(error, self._request_id) if error is not None else None)
        entry.utterance.abort()
        self._outbox.post(speak_pb2.SpeakResponse(utterance_id=entry.id, done=done))

    async def _send(self, entry: OpenUtterance, message: Message, on_taken: Callable[[], None] | None = None) -> None:
        payload = PAYLOADS[type(message)]
        await self._outbox.send(speak_pb2.SpeakResponse(utterance_id=entry.id, **{payload: message}), on_taken)
        if payload == "audio" and not self._prefills_soon and entry.utterance.may_prefill(follows=len(self.open) > 1):
            self._prefills_soon = True
            self.part.post(self._prefill)

    def _prefill(self) -> None:
        """Let the engine begin with the next utterances once it has made all of those before."""
        self._prefills_soon = False
        before: OpenUtterance | None = None
        for entry in self:
            if before is not None and not entry.stopped:
                before.utterance.pass_place_on(entry.utterance)
            before = entry
            try:
                if entry.stopped or not entry.utterance.prefill():
                    return
            except InvalidSynthesis as error:
                self.stop(entry, error)
                return
