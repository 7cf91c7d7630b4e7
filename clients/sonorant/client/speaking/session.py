"""One `Speak` session, which survives the loss of its connection and of its server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from types import TracebackType
from typing import Any, Self

import grpc

from sonorant.client.errors import (
    SpeechError,
    call_was_cancelled,
    from_rpc_error,
    is_full,
    is_lost,
    is_starting,
    session_is_finished,
    session_is_lost,
    session_is_over,
)
from sonorant.client.events import ConnectionLost, Event, Message, Resumed
from sonorant.client.speaking.journal import Journal
from sonorant.client.speaking.session_verbs import SessionVerbs
from sonorant.client.transport.call_opener import CallOpener
from sonorant.client.transport.connections import ClientClosed, Connections
from sonorant.client.transport.outage import Outage
from sonorant.client.transport.response_reader import ResponseReader
from sonorant.client.transport.retries import Retry, call_with_retries, time_limit
from sonorant.client.transport.server_search import AcceptedCall, ServerSearch
from sonorant.client.transport.silence_limits import FIRST_ANSWER_S
from sonorant.tts.v1.speak_pb2 import (
    SessionStarted,
    SpeakConfig,
    SpeakRequest,
    SpeakResponse,
)

ALL_UTTERANCES = "*"
NOT_ENTERED = "enter the session first: async with client.speak() as session"
ENTERED_BEFORE = "a session is entered once; call client.speak() again for another one"


class Session(SessionVerbs):
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
        opener: CallOpener,
        journal: Journal,
        open_call: Any = None,
    ) -> None:
        """`journal`: knows what `opener` says first. `open_call`: a call that already speaks the journal's
        utterance."""
        self._connections = connections
        self._opener = opener
        self._target = opener.target
        self._trace = opener.trace
        self._journal = journal
        self._open_call = open_call
        self._reader = ResponseReader(connections, self._opener.again, self._response_is_due)
        self._call: Any = None
        self._abandoned_call: Any = None  # the last one that was replaced by a call to another server
        self._writing = asyncio.Lock()  # a call takes one write at a time
        self._connected = False  # False = there is no call to write to, and the journal keeps the requests
        self._changed = asyncio.Event()  # wakes those who wait for requests of the caller
        self._has_room = asyncio.Event()  # wakes those who wait to open another utterance
        self._waiting: list[Message] = []  # for the caller; not from a server
        self._outage: Outage | None = None  # from a loss until a server speaks for the session again
        self._reconnecting: asyncio.Task[Resumed] | None = None
        self._nothing_left = False  # True = the call is lost, but nothing is left to continue on another server
        self._over = self._entered = False
        self.timeout_s: float | None = None  # for the beginning of the session
        self.answer_timeout_s: float | None = None  # for each try to begin it
        self.retry = Retry()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError(ENTERED_BEFORE)
        self._entered = True
        if self._open_call is not None:
            self._call, self.started, self._connected = self._open_call, SessionStarted(), True
            return self
        max_calls = 2 if self._opener.config.resumable else 1  # if the first server is slow to answer

        async def first_call() -> AcceptedCall:
            search = ServerSearch(self._connections, self._opener.first, FIRST_ANSWER_S, max_calls)
            async with time_limit(self.answer_timeout_s, self._target):
                return await search.run(self._connections.stub, keep_trying=False)

        async with time_limit(self.timeout_s, self._target):
            self._use(await call_with_retries(first_call, self._target, self.retry, num_tries_when_down=1))
        self._connected = True
        if self._journal.expects_response:
            self._reader.expect_response()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the session, and cancel everything that is still being spoken."""
        self._stop()
        if self._call is not None:
            self._call.cancel()

    def use_config(self, config: SpeakConfig) -> None:
        self._journal.config = config

    async def send(self, request: SpeakRequest, config: SpeakConfig | None = None) -> None:
        if not self._entered:
            raise RuntimeError(NOT_ENTERED)
        while request.HasField("text") and self._journal.must_wait(request.utterance_id) and not self._over:
            self._has_room.clear()
            await self._has_room.wait()
        unheard_ms = self._reader.drop_audio() * 1000 if request.HasField("cancel") else 0.0
        async with self._writing:
            if self._over:
                raise session_is_over()
            if self._journal.finished:
                raise session_is_finished()
            await self._enter_and_write(request, config, unheard_ms)

    async def finish(self) -> None:
        """Send no more messages at all, not even `cancel`: open utterances are spoken to their end, then the iteration
        ends. If somebody may still interrupt, use `end`."""
        if self._trace is not None:
            self._trace.closed()
        async with self._writing:
            self._journal.finished = True
            self._changed.set()
            if self._connected:
                # gRPC's error if the call has just ended: the task that reads the events gets to know why.
                with contextlib.suppress(grpc.aio.InternalError):
                    await self._wait_for_write(self._call, self._call.done_writing())

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        message = await self.read()
        if message is None:
            raise StopAsyncIteration
        if isinstance(message, SpeakResponse):
            return Event(message.utterance_id, getattr(message, message.WhichOneof("payload")))
        return Event("", message)

    async def read(self) -> Message | None:
        """Return the next message of the server as it came, or what the session itself says; None at the end. For
        programs that pass messages on; others iterate over the session."""
        if not self._entered:
            raise RuntimeError(NOT_ENTERED)
        try:
            return await self._next()
        except SpeechError:
            self._stop()
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise call_was_cancelled() from None  # the call was cancelled, not this task

    async def _next(self) -> Message | None:
        while True:
            if self._waiting:
                return self._waiting.pop(0)
            if self._nothing_left:
                self._stop()
                return None
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
                    taken: SpeakResponse = response
                    return taken
            else:
                if self._trace is not None:
                    self._trace.metadata("trailers", await self._call.trailing_metadata())
                if not await self._needs_another_server():
                    self._stop()
                    return None
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
        if self.started.resumable and not is_late and self._journal.gives_up(response):
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

    async def _enter_and_write(self, request: SpeakRequest, config: SpeakConfig | None, unheard_ms: float) -> None:
        """Enter a request into the journal, and write it to the call. The order is the same in both."""
        expected = self._journal.expects_response
        entered = self._journal.enter(request, config, unheard_ms)
        self._drop_cancelled()
        self._changed.set()
        if entered is None or not self._connected:
            return
        if not expected and self._journal.expects_response:
            self._reader.expect_response()
        try:
            if entered.HasField("text") and (before := self._journal.config_to_send(entered)):
                await self._wait_for_write(self._call, self._opener.write(self._call, before))
            await self._wait_for_write(self._call, self._opener.write(self._call, entered))
        except grpc.aio.AioRpcError as error:
            if not (self.started.resumable and is_lost(error)):
                raise from_rpc_error(error, self._target) from None
            self._connected = False  # the task that reads the events gets the error, too, and resumes elsewhere
        except asyncio.InvalidStateError:
            if not (self.started.resumable and self._journal.unfinished):
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

    def _use(self, accepted: AcceptedCall) -> None:
        self._call, self.started = accepted.call, accepted.started
        self._reader.begin(accepted.stub, accepted.started)

    def _response_is_due(self) -> bool:
        return self._connected and self._journal.expects_response

    # Without a server

    async def _needs_another_server(self) -> bool:
        """After the server has ended the session in good order, wait until the caller sends more or finishes. Return
        whether there is more for another server, or for the caller."""
        if not (self.started.resumable and self._journal.server_goes_away):
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
        if error is not None and not (self.started.resumable and is_lost(error)):
            raise from_rpc_error(error, self._target) from None
        now_s = asyncio.get_running_loop().time()
        if self._outage is None or not self._outage.goes_on(now_s):
            self._outage, is_first = Outage(self._reader.silent_since_s or now_s, self.retry.for_s), True
        else:
            self._outage.lost_s, is_first = now_s, False
        missing = self._journal.drop_cancelled(is_lost=True)
        if self._journal.finished and not self._journal.unfinished:
            self._nothing_left = True
            self._waiting += missing
            return
        if not planned:
            self._waiting.append(ConnectionLost(error and from_rpc_error(error, self._target)))
        self._waiting += missing
        self._has_room.set()
        if self._writing.locked():  # a write waits for the old server
            self._abandoned_call = self._call
            self._call.cancel()
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect(self._outage, error, is_first))

    async def _reconnect(self, outage: Outage, error: grpc.aio.AioRpcError | None, is_first: bool) -> Resumed:
        """Move the session to a server. Raises the error if none takes it in time."""
        loop = asyncio.get_running_loop()
        while True:
            delay_s = 0.0 if is_first else outage.next_delay_s()
            if is_starting(self._reader.error):
                outage.wait_for_start(loop.time())
            if outage.is_over(loop.time() + delay_s):
                error = self._reader.error or error
                raise (from_rpc_error(error, self._target) if error else session_is_lost(self._target)) from None
            await asyncio.sleep(delay_s)
            is_first = False
            try:
                async with asyncio.timeout_at(outage.deadline_s):
                    self._use(await self._reader.next_server())
                    await self._resend()
            except grpc.aio.AioRpcError as refused:
                error = refused
                if not (is_lost(refused) or is_full(refused)):
                    raise from_rpc_error(refused, self._target) from None
            except (grpc.aio.UsageError, ClientClosed):  # the first is gRPC's word for it
                raise call_was_cancelled() from None
            except (asyncio.InvalidStateError, TimeoutError):
                pass
            else:
                outage.connected_s = loop.time()
                return Resumed(loop.time() - outage.lost_s, self.started.session_id)

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
        if (reconnecting := self._reconnecting).done():
            self._reconnecting = None
            self._waiting.append(reconnecting.result())

    def _drop_cancelled(self) -> None:
        """Tell the caller at once about cancelled utterances of which no server knows."""
        is_lost = self._reconnecting is not None and not self._connected
        self._waiting += self._journal.drop_cancelled(is_lost=is_lost)
        self._has_room.set()
        self._nothing_left = is_lost and self._journal.finished and not self._journal.unfinished

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
