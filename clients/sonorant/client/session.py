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
from sonorant.client.connections import Connections
from sonorant.client.errors import (
    ServerUnavailable,
    SpeechError,
    call_was_cancelled,
    from_rpc_error,
    is_full,
    is_lost,
    session_is_finished,
    session_is_over,
)
from sonorant.client.journal import Journal
from sonorant.client.response_reader import ResponseReader
from sonorant.client.server_search import AcceptedCall, Attempt, ServerSearch
from sonorant.client.silence_limits import FIRST_ANSWER_S
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
from sonorant.tts.v1.synthesis_pb2 import Marks, Queued, UtteranceDone, UtteranceStarted, Warning

ALL_UTTERANCES = "*"
RESUMING = "sonorant-resuming"  # metadata of a call that continues another one
# A session ends with an error if no server takes it for this long, or if it is lost this often without a response.
RECONNECT_S = 20.0
MAX_LOSSES_IN_A_ROW = 20


@dataclass(frozen=True, slots=True)
class Resumed:
    """The session lost its server and continues on another one, or on the same one again, with the sample after the
    last one received. Callers need not do anything, unless they want to tell the listener about a pause."""

    gap_s: float  # from the loss until the next server answered
    session_id: str  # of the next server


Payload: TypeAlias = (
    Queued | UtteranceStarted | AudioChunk | Marks | FlushDone | Revised | UtteranceDone | Warning | GoAway | Resumed
)


@dataclass(frozen=True, slots=True)
class Event:
    """One message of a session and the utterance that it is about ("" if none)."""

    utterance_id: str
    payload: Payload


class Session:
    """Send text and controls from any task; iterate over the events in one task.

    `utterance_id=""` is the current utterance; utterances are numbered u1, u2, ... The iteration ends when the server
    has nothing more to send, and raises the RPC's error if there is one. Leaving the context earlier cancels all.

    The session survives a lost connection, and a server that is dead, silent or shutting down, if another server can be
    reached within 20 seconds. The utterances continue there with the next sample, and a `Resumed` event says so.
    Messages sent meanwhile are kept. `resume=False` in `SpeechClient.speak` switches this off; older servers lack it.
    """

    started: SessionStarted  # the server's first message; set once the context is entered

    def __init__(
        self,
        connections: Connections,
        target: str,
        config: SpeakConfig,
        trace: Trace | None = None,
        *,
        text: str = "",
        end: bool = False,
        journal: Journal | None = None,
        open_call: Any = None,
    ) -> None:
        """`text`: the first text; `end`: it is all. `open_call`: a call that already speaks `journal`'s utterance."""
        self._connections = connections
        self._target = target
        self._config = config
        self._trace = trace
        self._text, self._end = text, end
        self._opening: list[SpeakRequest] = []  # text and end, for a server that does not take them with the config
        self._journal = journal or Journal(config.synthesis.voice if config.synthesis.HasField("voice") else None)
        self._open_call = open_call
        self._reader = ResponseReader(connections, self._connect_again, self._response_is_due)
        self._call: Any = None
        self._abandoned_call: Any = None  # the last one that was replaced by a call to another server
        self._writing = asyncio.Lock()  # a call takes one write at a time
        self._connected = False  # False = there is no call to write to, and the journal keeps the requests
        self._journal_changed = asyncio.Event()  # wakes `_needs_another_server`
        self._missing: list[SpeakResponse] = []  # responses that a lost server did not send
        self._losses_in_a_row = 0
        self._nothing_left = False  # True = the call is lost, but nothing is left to continue on another server
        self._over = self._entered = False

    async def __aenter__(self) -> Self:
        self._entered = True
        if self._open_call is not None:
            self._call, self.started, self._connected = self._open_call, SessionStarted(), True
            return self
        try:
            self._use(await self._first_call())
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self._target) from None
        self._connected = True
        if self._journal.expects_response:
            self._reader.expect_response()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._over = True
        self._reader.stop()
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
        self._reader.drop_audio()
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
            self._journal_changed.set()
            if self._connected:
                await self._wait_for_write(self._call, self._call.done_writing())

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        self._check_entered()
        try:
            return await self._next()
        except (SpeechError, StopAsyncIteration):
            self._over = True
            self._reader.stop()
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise call_was_cancelled() from None  # the call was cancelled, not this task

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeError("enter the session first: async with client.speak() as session")

    async def _next(self) -> Event:
        while True:
            if self._missing:
                return _event(self._missing.pop(0))
            if self._nothing_left:
                raise StopAsyncIteration
            try:
                response = await self._reader.read(self._call)
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
            self._losses_in_a_row = 0
            if self._call is self._open_call and response.HasField("started"):
                self._use(self._open_call.accepted(response.started))  # from here on another server can continue it
                self._reader.expect_response()
            if self._journal.take(response):
                return _event(response)

    async def _send(self, record: Callable[[], SpeakRequest | None]) -> None:
        """Enter a request into the journal with `record`, and write it to the call. The order is the same in both."""
        self._check_entered()
        async with self._writing:
            if self._over:
                raise session_is_over()
            if self._journal.finished:
                raise session_is_finished()
            expected = self._journal.expects_response
            request = record()
            if self._journal.holds_back:
                self._journal_changed.set()
            if request is None or not self._connected:
                return
            if not expected and self._journal.expects_response:
                self._reader.expect_response()
            try:
                await self._wait_for_write(self._call, self._write(self._call, request))
            except grpc.aio.AioRpcError as error:
                if not self._may_resume(error):
                    raise from_rpc_error(error, self._target) from None
                self._connected = False  # the task that reads the events gets the error, too, and resumes elsewhere
            except asyncio.InvalidStateError:
                if not (self._resumable and self._journal.unfinished):
                    raise session_is_over() from None
                self._connected = False

    async def _write(self, call: Any, request: SpeakRequest) -> None:
        if self._trace is not None:
            self._trace.sent(request)
        await call.write(request)

    async def _wait_for_write(self, call: Any, writing: Awaitable[None]) -> None:
        """Wait for a write. A frozen server may never take it; then `_resume` abandons the call, and the write ends."""
        try:
            await writing
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if call is not self._abandoned_call or (task is not None and task.cancelling()):
                raise
            self._connected = False

    async def _first_call(self) -> AcceptedCall:
        """Return the call that begins the session. If its server is slow to answer, one more call is made."""
        requests = [self._journal.text("", self._text)] if self._text else []
        requests += [self._journal.end("")] if self._end else []
        self._opening = [request for request in requests if request is not None]
        search = ServerSearch(self._connections, self._open, FIRST_ANSWER_S, 2 if self._config.resumable else 1)
        return await search.run(self._connections.stub, keep_trying=False)

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

    async def _connect_again(self, attempt: Attempt) -> SessionStarted:
        return await self._connect(attempt, self._config, resuming=True)

    async def _connect(self, attempt: Attempt, config: SpeakConfig, *, resuming: bool = False) -> SessionStarted:
        # Wait for the reply before sending more, so that a server that refuses can say why: grpc.aio overwrites the
        # status of a call if a write comes after its end.
        call = attempt.call = attempt.stub.Speak(metadata=((RESUMING, "1"),) if resuming else ())
        try:
            await self._write(call, SpeakRequest(config=config))
            headers = await call.initial_metadata()
            attempt.has_headers = True
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

    def _use(self, accepted: AcceptedCall) -> None:
        self._call, self.started = accepted.call, accepted.started
        self._reader.begin(accepted.stub, accepted.started)

    def _response_is_due(self) -> bool:
        return self._connected and self._journal.expects_response

    # Resuming on another server

    @property
    def _resumable(self) -> bool:
        return self.started.resumable

    def _may_resume(self, error: grpc.aio.AioRpcError) -> bool:
        return self._resumable and is_lost(error) and self._losses_in_a_row < MAX_LOSSES_IN_A_ROW

    async def _needs_another_server(self) -> bool:
        """After the server has ended the session in good order, wait until the caller sends more or finishes. Return
        whether there is more for another server."""
        if not (self._resumable and self._journal.server_goes_away):
            return False
        while not self._journal.unfinished:  # the caller may still send something
            if self._journal.finished:
                return False
            self._journal_changed.clear()
            await self._journal_changed.wait()
        return True

    async def _resume(self, error: grpc.aio.AioRpcError | None) -> Event:
        """Move the session to another server and return the `Resumed` event, or a `done` that the lost server has not
        sent. Raises the error if no server takes the session, and StopAsyncIteration if nothing is left to speak."""
        self._connected = False
        lost_s = self._reader.silent_since_s or time.monotonic()
        deadline_s = asyncio.get_running_loop().time() + RECONNECT_S
        if error is not None and not self._may_resume(error):
            raise from_rpc_error(error, self._target) from None
        self._losses_in_a_row += 1
        self._missing += self._journal.drop_cancelled()
        if self._journal.finished and not self._journal.unfinished:
            self._nothing_left = True
            if self._missing:
                return _event(self._missing.pop(0))
            raise StopAsyncIteration
        if self._writing.locked():  # a write waits for the old server
            self._abandoned_call = self._call
            self._call.cancel()
        for delay_s in delays_s():
            try:
                async with asyncio.timeout_at(deadline_s):
                    self._use(await self._reader.next_server())
                    await self._resend()
                break
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError) as refused:
                if isinstance(refused, grpc.aio.AioRpcError):
                    error = refused
                    if not (is_lost(refused) or is_full(refused)):
                        raise from_rpc_error(refused, self._target) from None
                if asyncio.get_running_loop().time() + delay_s > deadline_s:
                    raise self._unreachable(self._reader.error or error) from None
                await asyncio.sleep(delay_s)
        return Event("", Resumed(time.monotonic() - lost_s, self.started.session_id))

    def _unreachable(self, error: grpc.aio.AioRpcError | None) -> SpeechError:
        if error is not None:
            return from_rpc_error(error, self._target)
        message = f"no server at {self._target} took the session within {RECONNECT_S:g} s after it was lost"
        return ServerUnavailable(grpc.StatusCode.UNAVAILABLE, message)

    async def _resend(self) -> None:
        async with self._writing:
            for request in self._journal.requests_to_resend():
                await self._write(self._call, request)
            if self._journal.finished:
                await self._call.done_writing()
            self._connected = True
            self._reader.expect_response()


def _event(response: SpeakResponse) -> Event:
    return Event(response.utterance_id, getattr(response, response.WhichOneof("payload")))
