"""One `Speak` session, which survives the loss of its connection and of its server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import grpc

from sonorant.client.call_opener import CallOpener
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
from sonorant.client.events import ConnectionLost, Event, Resumed
from sonorant.client.journal import Journal
from sonorant.client.outage import RECONNECT_S, Outage
from sonorant.client.response_reader import ResponseReader
from sonorant.client.server_search import AcceptedCall, ServerSearch
from sonorant.client.silence_limits import FIRST_ANSWER_S
from sonorant.client.trace import Trace
from sonorant.tts.v1.speak_pb2 import (
    Cancel,
    Flush,
    PlaybackReport,
    Revise,
    SessionStarted,
    SpeakConfig,
    SpeakRequest,
    SpeakResponse,
)

ALL_UTTERANCES = "*"


class Session:
    """Send text and controls from any task; iterate over the events in one task.

    `utterance_id=""` is the current utterance; utterances are numbered u1, u2, ... The iteration ends when the server
    has nothing more to send, and raises the RPC's error if there is one. Leaving the context earlier cancels all.

    The session survives a lost connection, and a server that is dead, silent, restarting or shutting down, if one can
    be reached within 20 seconds. `ConnectionLost` says so at once, and `Resumed` when the utterances continue with the
    next sample. Messages sent meanwhile are kept, and a cancel is answered by `done` at once. `resume=False` in
    `SpeechClient.speak` switches this off; older servers lack it.
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
        self._opener = CallOpener(target, config, trace)
        self._journal = journal or Journal(config)
        self._open_call = open_call
        self._reader = ResponseReader(connections, self._opener.again, self._response_is_due)
        self._call: Any = None
        self._abandoned_call: Any = None  # the last one that was replaced by a call to another server
        self._writing = asyncio.Lock()  # a call takes one write at a time
        self._connected = False  # False = there is no call to write to, and the journal keeps the requests
        self._changed = asyncio.Event()  # wakes those who wait for requests of the caller
        self._has_room = asyncio.Event()  # wakes those who wait to open another utterance
        self._waiting: list[Event] = []  # events for the caller that came from no server
        self._outage: Outage | None = None  # from a loss until a server speaks for the session again
        self._reconnecting: asyncio.Task[Event] | None = None
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
        self._stop()
        if self._call is not None:
            self._call.cancel()

    async def send_text(self, text: str, utterance_id: str = "") -> None:
        """Append text to the utterance exactly as it is; it must contain the spaces between words, too. Text that
        would open more than 32 utterances waits until one is done, so read the events in another task."""
        if not isinstance(text, str):  # deltas of language models may be None, which would end the session
            raise TypeError(f"text is {text!r}, not a string")
        while self._journal.must_wait(utterance_id) and not self._over:
            self._has_room.clear()
            await self._has_room.wait()
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
        """Barge-in: drop all audio that was not sent yet. Nothing of the utterance follows but its `done`, at once,
        even while there is no server. ALL_UTTERANCES cancels every utterance of the session."""
        unheard_ms = self._reader.drop_audio() * 1000
        await self._send(lambda: self._journal.cancel(utterance_id, Cancel(played_ms=played_ms), unheard_ms))

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
            self._changed.set()
            if self._connected:
                await self._wait_for_write(self._call, self._call.done_writing())

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        self._check_entered()
        try:
            return await self._next()
        except (SpeechError, StopAsyncIteration):
            self._stop()
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
            if self._waiting:
                return self._waiting.pop(0)
            if self._nothing_left:
                raise StopAsyncIteration
            if self._reconnecting is not None:
                await self._reconnected()
                continue
            try:
                response = await self._reader.read(self._call)
            except grpc.aio.AioRpcError as error:
                self._lose(error)
                continue
            if response is None:
                self._lose(None)
            elif response is not grpc.aio.EOF:
                if self._take(response):
                    return _event(response)
            else:
                if self._trace is not None:
                    self._trace.metadata("trailers", await self._call.trailing_metadata())
                if not await self._needs_another_server():
                    raise StopAsyncIteration
                if not self._waiting:
                    self._lose(None, planned=True)

    def _take(self, response: SpeakResponse) -> bool:
        """Take a response of the current server; return whether it is for the caller."""
        if self._trace is not None:
            self._trace.received(response)
        if self._call is self._open_call and response.HasField("started"):
            self._use(self._open_call.accepted(response.started))  # from here on another server can continue it
            self._reader.expect_response()
        now_s = asyncio.get_running_loop().time()
        is_late = self._outage is not None and self._outage.is_over(now_s)
        if self._resumable and not is_late and self._journal.gives_up(response):
            self._journal.hold_back(response.utterance_id)
            is_new = False
        else:
            is_new = self._journal.take(response)
            if not response.HasField("alive"):
                self._outage = None
            if response.HasField("done"):
                self._has_room.set()
        if response.HasField("done") and self._journal.holds_back and not self._journal.expects_response:
            self._call.cancel()
            self._lose(None, planned=self._journal.server_goes_away)
        return is_new

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
            self._drop_cancelled()
            self._changed.set()
            if request is None or not self._connected:
                return
            if not expected and self._journal.expects_response:
                self._reader.expect_response()
            try:
                if request.HasField("text") and (config := self._journal.config_to_send(request)):
                    await self._wait_for_write(self._call, self._opener.write(self._call, config))
                await self._wait_for_write(self._call, self._opener.write(self._call, request))
            except grpc.aio.AioRpcError as error:
                if not self._may_resume(error):
                    raise from_rpc_error(error, self._target) from None
                self._connected = False  # the task that reads the events gets the error, too, and resumes elsewhere
            except asyncio.InvalidStateError:
                if not (self._resumable and self._journal.unfinished):
                    raise session_is_over() from None
                self._connected = False

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
        self._opener.opening = [request for request in requests if request is not None]
        search = ServerSearch(self._connections, self._opener.first, FIRST_ANSWER_S, 2 if self._config.resumable else 1)
        return await search.run(self._connections.stub, keep_trying=False)

    def _use(self, accepted: AcceptedCall) -> None:
        self._call, self.started = accepted.call, accepted.started
        self._reader.begin(accepted.stub, accepted.started)

    def _response_is_due(self) -> bool:
        return self._connected and self._journal.expects_response

    # Without a server

    @property
    def _resumable(self) -> bool:
        return self.started.resumable

    def _may_resume(self, error: grpc.aio.AioRpcError) -> bool:
        return self._resumable and is_lost(error)

    async def _needs_another_server(self) -> bool:
        """After the server has ended the session in good order, wait until the caller sends more or finishes. Return
        whether there is more for another server, or for the caller."""
        if not (self._resumable and self._journal.server_goes_away):
            return False
        while not (self._journal.unfinished or self._waiting):  # the caller may still send something
            if self._journal.finished:
                return False
            self._changed.clear()
            await self._changed.wait()
        return True

    def _lose(self, error: grpc.aio.AioRpcError | None, *, planned: bool = False) -> None:
        """Begin to look for another server. `planned`: the server has said before that it goes away. Raises the error
        if the session cannot continue elsewhere."""
        self._connected = False
        if error is not None and not self._may_resume(error):
            raise from_rpc_error(error, self._target) from None
        now_s = asyncio.get_running_loop().time()
        if self._outage is None or not self._outage.goes_on(now_s):
            self._outage, is_first = Outage(self._reader.silent_since_s or now_s), True
        else:
            self._outage.lost_s, is_first = now_s, False
        told = [] if planned else [Event("", ConnectionLost(error and from_rpc_error(error, self._target)))]
        missing = [_event(done) for done in self._journal.drop_cancelled(is_lost=True)]
        if self._journal.finished and not self._journal.unfinished:
            self._nothing_left = True
            self._waiting += missing
            return
        self._waiting += told + missing
        self._has_room.set()
        if self._writing.locked():  # a write waits for the old server
            self._abandoned_call = self._call
            self._call.cancel()
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect(self._outage, error, is_first))

    async def _reconnect(self, outage: Outage, error: grpc.aio.AioRpcError | None, is_first: bool) -> Event:
        """Move the session to a server. Raises the error if none takes it in time."""
        loop = asyncio.get_running_loop()
        must_wait = not is_first
        while True:
            delay_s = outage.next_delay_s() if must_wait else 0.0
            if outage.is_over(loop.time() + delay_s):
                raise self._unreachable(self._reader.error or error) from None
            await asyncio.sleep(delay_s)
            must_wait = True
            try:
                async with asyncio.timeout_at(outage.deadline_s):
                    self._use(await self._reader.next_server())
                    await self._resend()
            except grpc.aio.AioRpcError as refused:
                error = refused
                if not (is_lost(refused) or is_full(refused)):
                    raise from_rpc_error(refused, self._target) from None
            except (asyncio.InvalidStateError, TimeoutError):
                pass
            else:
                outage.connected_s = loop.time()
                return Event("", Resumed(loop.time() - outage.lost_s, self.started.session_id))

    async def _reconnected(self) -> None:
        """Wait until a server has the session again, or until there is something for the caller. Raises the error if no
        server takes the session."""
        assert self._reconnecting is not None, "the server is lost"
        self._changed.clear()
        changed = asyncio.get_running_loop().create_task(self._changed.wait())
        try:
            await asyncio.wait((self._reconnecting, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if self._reconnecting.done():
            reconnecting, self._reconnecting = self._reconnecting, None
            self._waiting.append(reconnecting.result())

    def _drop_cancelled(self) -> None:
        """Tell the caller at once about cancelled utterances of which no server knows."""
        is_lost = self._reconnecting is not None and not self._connected
        self._waiting += [_event(done) for done in self._journal.drop_cancelled(is_lost=is_lost)]
        self._has_room.set()
        if is_lost and self._journal.finished and not self._journal.unfinished:
            self._nothing_left = True

    def _unreachable(self, error: grpc.aio.AioRpcError | None) -> SpeechError:
        if error is not None:
            return from_rpc_error(error, self._target)
        message = f"no server at {self._target} took the session within {RECONNECT_S:g} s after it was lost"
        return ServerUnavailable(grpc.StatusCode.UNAVAILABLE, message)

    async def _resend(self) -> None:
        async with self._writing:
            for request in self._journal.requests_to_resend():
                await self._opener.write(self._call, request)
            if self._journal.finished:
                await self._call.done_writing()
            self._connected = True
            self._reader.expect_response()

    def _stop(self) -> None:
        self._over = True
        self._reader.stop()
        self._has_room.set()
        if self._reconnecting is not None:
            self._reconnecting.cancel()


def _event(response: SpeakResponse) -> Event:
    return Event(response.utterance_id, getattr(response, response.WhichOneof("payload")))
