"""One `Speak` session, which survives the loss of its connection and of its server."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

import grpc

from sonorant.client.backoff import delays_s
from sonorant.client.errors import (
    ServerUnavailable,
    SpeechError,
    cancelled,
    finished,
    from_rpc_error,
    is_lost,
    is_refusal,
    nothing_more,
)
from sonorant.client.hearing import Hearing
from sonorant.client.journal import Journal
from sonorant.client.lines import Lines
from sonorant.client.patience import FIRST_ANSWER_S
from sonorant.client.seeking import Attempt, Found, Seeking
from sonorant.client.trace import Trace
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.speak_pb2 import (
    Cancel,
    Flush,
    FlushDone,
    GoAway,
    Opening,
    PlaybackReport,
    Revise,
    Revised,
    SessionStarted,
    SpeakConfig,
    SpeakRequest,
    SpeakResponse,
)
from sonorant.tts.v1.synthesis_pb2 import Marks, UtteranceDone, UtteranceStarted, Warning

ALL_UTTERANCES = "*"
RESUMING = "sonorant-resuming"  # metadata of a call that continues another one
# A session ends with an error if no server takes it for this long, or if it is lost this often without a response.
RECONNECT_S = 20.0
MAX_LOSSES_WITHOUT_NEWS = 20


@dataclass(frozen=True, slots=True)
class Resumed:
    """The session lost its server and continues on another one, or on the same one again, with the sample after the
    last one received. Callers need not do anything, unless they want to tell the listener about a pause."""

    gap_s: float  # from the loss until the next server answered
    session_id: str  # of the next server


Payload: TypeAlias = (
    UtteranceStarted | AudioChunk | Marks | FlushDone | Revised | UtteranceDone | Warning | GoAway | Resumed
)


@dataclass(frozen=True, slots=True)
class Event:
    """One message of a session and the utterance that it is about ("" if none)."""

    utterance_id: str
    payload: Payload


class Session:
    """Send text and controls from any task; iterate over the events in one task.

    `utterance_id=""` is the current utterance; utterances are numbered u1, u2, ... The iteration ends when the server
    has nothing more to send, and raises the RPC's error if there is one. Leaving the context before that cancels
    everything.

    A lost connection, or a server that is dead, silent or shutting down, is no error here if another server can be
    reached within 20 seconds: the utterances continue there with the next sample, and a `Resumed` event says so.
    Messages sent in the meantime are kept for it. `resume=False` in `SpeechClient.speak` switches this off; older
    servers do not support it.
    """

    started: SessionStarted  # the server's first message; set once the context is entered

    def __init__(
        self,
        lines: Lines,
        target: str,
        config: SpeakConfig,
        trace: Trace | None = None,
        *,
        text: str = "",
        end: bool = False,
        journal: Journal | None = None,
        begun: Any = None,
    ) -> None:
        """`text`: the first text; `end`: it is the whole utterance. `begun`: a call that already speaks the one
        utterance in `journal`."""
        self._lines = lines
        self._target = target
        self._config = config
        self._trace = trace
        self._text, self._end = text, end
        self._opening: list[SpeakRequest] = []  # text and end, for a server that does not take them with the config
        self._journal = journal or Journal(config.synthesis.voice if config.synthesis.HasField("voice") else None)
        self._begun = begun
        self._hearing = Hearing(lines, self._go_on, lambda: self._live and self._journal.waits)
        self._call: Any = None
        self._left: Any = None  # a call that was abandoned for another
        self._writing = asyncio.Lock()  # a call takes one write at a time
        self._live = False  # True = there is a call to write to; otherwise the journal keeps the requests
        self._wanted = asyncio.Event()  # set when there is something to do for a next server
        self._owed: list[SpeakResponse] = []  # responses that a lost server should still have sent
        self._losses_without_news = 0
        self._nothing_left = False  # True = there is nothing to continue on another server
        self._over = self._entered = False

    async def __aenter__(self) -> Self:
        self._entered = True
        if self._begun is not None:
            self._call, self.started, self._live = self._begun, SessionStarted(), True
            return self
        try:
            self._take_up(await self._newcomer())
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self._target) from None
        self._live = True
        if self._journal.waits:
            self._hearing.expect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._over = True
        self._hearing.stop()
        if self._call is not None:
            self._call.cancel()

    async def send_text(self, text: str, utterance_id: str = "") -> None:
        """Append text to the utterance exactly as it is; it must contain the spaces between words, too."""
        if not isinstance(text, str):  # deltas of language models may be None, which would end the session
            raise TypeError(f"text is {text!r}, not a string")
        await self._send(lambda: self._journal.text(utterance_id, text))

    async def revise(self, from_char: int, text: str, utterance_id: str = "") -> None:
        """Replace the utterance's text from `from_char` on. A `Revised` event says from where on it was really
        replaced: words whose audio was sent stay."""
        await self._send(lambda: self._journal.revise(utterance_id, Revise(from_char=from_char, text=text)))

    async def flush(
        self, flush_id: int = 0, utterance_id: str = "", *, pause_ms: int = 0, carry_on: bool = False
    ) -> None:
        """Speak all text sent so far to its end, then be silent for `pause_ms`; the utterance stays open. `carry_on`:
        the model continues in the same manner afterwards, see `Flush` in the proto."""
        flush = Flush(flush_id=flush_id, pause_ms=pause_ms, carry_on=carry_on)
        await self._send(lambda: self._journal.flush(utterance_id, flush))

    async def end(self, utterance_id: str = "") -> None:
        """End the utterance's text; the next text opens another utterance."""
        await self._send(lambda: self._journal.end(utterance_id))

    async def cancel(self, utterance_id: str = "", played_ms: int | None = None) -> None:
        """Barge-in: drop all audio that was not sent yet. ALL_UTTERANCES cancels every utterance of the session."""
        self._hearing.dropped()
        await self._send(lambda: self._journal.cancel(utterance_id, Cancel(played_ms=played_ms)))

    async def report_playback(self, played_ms: int, utterance_id: str = "") -> None:
        """Tell the server how much the listener has really heard."""
        await self._send(lambda: self._journal.playback(utterance_id, PlaybackReport(played_ms=played_ms)))

    async def finish(self) -> None:
        """Send no more messages at all, not even `cancel`: open utterances are spoken to their end, then the iteration
        ends. If somebody may still interrupt, use `end`."""
        if self._trace is not None:
            self._trace.closed()
        async with self._writing:
            self._journal.finished = True
            self._wanted.set()
            if self._live:
                await self._unless_left(self._call, self._call.done_writing())

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        self._check_entered()
        try:
            return await self._next()
        except (SpeechError, StopAsyncIteration):
            self._over = True
            self._hearing.stop()
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise cancelled() from None  # the call was cancelled, not the task that reads

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeError("enter the session first: async with client.speak() as session")

    async def _next(self) -> Event:
        while True:
            if self._owed:
                return _event(self._owed.pop(0))
            if self._nothing_left:
                raise StopAsyncIteration
            try:
                response = await self._hearing.read(self._call)
            except grpc.aio.AioRpcError as error:
                return await self._resume(error)
            if response is grpc.aio.EOF:
                if self._trace is not None:
                    self._trace.metadata("trailers", await self._call.trailing_metadata())
                if not await self._needs_another_server():
                    raise StopAsyncIteration
            if response is None or response is grpc.aio.EOF:
                return await self._resume(None)
            if self._trace is not None:
                self._trace.received(response)
            self._losses_without_news = 0
            if self._call is self._begun and response.HasField("started"):
                self._take_up(self._begun.found(response.started))  # from here on another server can continue it
                self._hearing.expect()
            if self._journal.take(response):
                return _event(response)

    async def _send(self, note: Callable[[], SpeakRequest | None]) -> None:
        """Enter a request into the journal with `note`, and write it to the call. Both happen in the same order."""
        self._check_entered()
        async with self._writing:
            if self._over:
                raise nothing_more()
            if self._journal.finished:
                raise finished()
            waited = self._journal.waits
            request = note()
            if self._journal.holds_back:
                self._wanted.set()
            if request is None or not self._live:
                return
            if not waited and self._journal.waits:
                self._hearing.expect()
            try:
                await self._unless_left(self._call, self._write(self._call, request))
            except grpc.aio.AioRpcError as error:
                if not self._may_resume(error):
                    raise from_rpc_error(error, self._target) from None
                self._live = False  # the task that reads the events will find out, and resume elsewhere
            except asyncio.InvalidStateError:
                if not (self._resumable and self._journal.unfinished):
                    raise nothing_more() from None
                self._live = False

    async def _write(self, call: Any, request: SpeakRequest) -> None:
        if self._trace is not None:
            self._trace.sent(request)
        await call.write(request)

    async def _unless_left(self, call: Any, writing: Awaitable[None]) -> None:
        """Wait for a write. If it ends because its call was abandoned, return; a frozen server may never take it."""
        try:
            await writing
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if call is not self._left or (task is not None and task.cancelling()):
                raise
            self._live = False

    async def _newcomer(self) -> Found:
        """Find a server for a new session. If the first one does not answer for long, try another one, once."""
        told = [self._journal.text("", self._text)] if self._text else []
        told += [self._journal.end("")] if self._end else []
        self._opening = [request for request in told if request is not None]
        seeking = Seeking(self._lines, self._open, FIRST_ANSWER_S, 2 if self._config.resumable else 1)
        return await seeking.run(self._lines.stub, persists=False)

    async def _open(self, attempt: Attempt) -> SessionStarted:
        """Send the first text and its end with the config, and again on their own if an older server ignores them."""
        if not self._opening:
            return await self._connect(attempt, self._config)
        first = self._opening[0]
        config = SpeakConfig(opening=Opening(utterance_id=first.utterance_id, text=self._text, end=self._end))
        config.MergeFrom(self._config)
        started = await self._connect(attempt, config)
        if not started.takes_opening:
            with suppress(asyncio.InvalidStateError):  # the call is over already; reading from it says why
                for request in self._opening:
                    await self._write(attempt.call, request)
        return started

    async def _go_on(self, attempt: Attempt) -> SessionStarted:
        return await self._connect(attempt, self._config, resuming=True)

    async def _connect(self, attempt: Attempt, config: SpeakConfig, *, resuming: bool = False) -> SessionStarted:
        # Wait for the reply before sending more, so that a server that refuses can say why: grpc.aio overwrites the
        # status of a call if a write comes after its end.
        call = attempt.call = attempt.stub.Speak(metadata=((RESUMING, "1"),) if resuming else ())
        try:
            await self._write(call, SpeakRequest(config=config))
            headers = await call.initial_metadata()
            attempt.greeted = True
            if self._trace is not None:
                self._trace.metadata("headers", headers)
            first = await call.read()
        except BaseException:
            call.cancel()
            raise
        if first is grpc.aio.EOF:
            raise SpeechError(grpc.StatusCode.INTERNAL, f"the server at {self._target} ended the session at once")
        if self._trace is not None:
            self._trace.received(first)
        started: SessionStarted = first.session
        return started

    def _take_up(self, found: Found) -> None:
        self._call, self.started = found.call, found.started
        self._hearing.begin(found.stub, found.started)

    # Resuming on another server

    @property
    def _resumable(self) -> bool:
        return self.started.resumable

    def _may_resume(self, error: grpc.aio.AioRpcError) -> bool:
        return self._resumable and is_lost(error) and self._losses_without_news < MAX_LOSSES_WITHOUT_NEWS

    async def _needs_another_server(self) -> bool:
        """After the server ended the session in good order: wait until the caller wants something more or is finished;
        return whether it wants more."""
        if not (self._resumable and self._journal.server_goes):
            return False
        while not self._journal.unfinished:  # the server is gone, but the caller may still send something
            if self._journal.finished:
                return False
            self._wanted.clear()
            await self._wanted.wait()
        return True

    async def _resume(self, error: grpc.aio.AioRpcError | None) -> Event:
        """Move the session to another server and return the `Resumed` event, or a `done` that the lost server owed.
        Raises the error if no server takes the session, and StopAsyncIteration if nothing is left to speak."""
        self._live = False
        lost_s = self._hearing.silent_since_s or time.monotonic()
        deadline_s = asyncio.get_running_loop().time() + RECONNECT_S
        if error is not None and not self._may_resume(error):
            raise from_rpc_error(error, self._target) from None
        self._losses_without_news += 1
        self._owed += self._journal.cancelled()
        if self._journal.finished and not self._journal.unfinished:
            self._nothing_left = True
            if self._owed:
                return _event(self._owed.pop(0))
            raise StopAsyncIteration
        if self._writing.locked():  # by a write that the old server does not take
            self._left = self._call
            self._call.cancel()
        for delay_s in delays_s():
            try:
                async with asyncio.timeout_at(deadline_s):
                    self._take_up(await self._hearing.another())
                    await self._say_again()
                break
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError) as refused:
                if isinstance(refused, grpc.aio.AioRpcError):
                    error = refused
                    if not (is_lost(refused) or is_refusal(refused)):
                        raise from_rpc_error(refused, self._target) from None
                if asyncio.get_running_loop().time() + delay_s > deadline_s:
                    raise self._unreachable(self._hearing.error or error) from None
                await asyncio.sleep(delay_s)
        return Event("", Resumed(time.monotonic() - lost_s, self.started.session_id))

    def _unreachable(self, error: grpc.aio.AioRpcError | None) -> SpeechError:
        if error is not None:
            return from_rpc_error(error, self._target)
        message = f"no server at {self._target} took the session within {RECONNECT_S:g} s after it was lost"
        return ServerUnavailable(grpc.StatusCode.UNAVAILABLE, message)

    async def _say_again(self) -> None:
        async with self._writing:
            for request in self._journal.again():
                await self._write(self._call, request)
            if self._journal.finished:
                await self._call.done_writing()
            self._live = True
            self._hearing.expect()


def _event(response: SpeakResponse) -> Event:
    return Event(response.utterance_id, getattr(response, response.WhichOneof("payload")))
