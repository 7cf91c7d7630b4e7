"""One RPC of any kind: it is refused or served, and always ends with a status of ours.

gRPC sees every method as one with streams in both directions. Clients notice no difference, and so a call can be
refused before its request is read, or ended when its request does not come.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from google.rpc import code_pb2, status_pb2
from grpc_status import rpc_status

from sonorant.service.access.api_keys import anyone_at
from sonorant.service.calls import context as call_context
from sonorant.service.calls.call_queue import CallQueue, Entered, client_of, host_of
from sonorant.service.calls.context import CallContext
from sonorant.service.calls.loop_share import LoopShare
from sonorant.service.calls.record import CallRecord
from sonorant.service.calls.requests import END_OF_REQUESTS_S, checked
from sonorant.service.calls.stalled import Stalled
from sonorant.service.calls.translated import Translated
from sonorant.service.errors import MalformedMessage, RequestError, SlowReader
from sonorant.service.status import is_expected, to_status

log = logging.getLogger(__name__)

SPEAK = "TextToSpeechService/Speak"
PAUSE_S = 60.0  # between requests of a stream whose method has no limit of its own, such as reflection


@dataclass(frozen=True, slots=True)
class CallParts:
    """What all calls share."""

    request_timeout_s: float
    stalled: Stalled
    loop_share: LoopShare
    call_queue: CallQueue = field(default_factory=CallQueue)


class Call:
    def __init__(
        self,
        method: str,
        handler: Any,
        context: CallContext,
        refusal: RequestError | None,
        shared: CallParts,
        record: CallRecord | None,
    ) -> None:
        """`record`: None for health and reflection, which are called all the time and are not worth recording."""
        self.waits_since_s: float | None = None
        self._method = method
        self._handler = handler
        self._context = context
        self._refusal = refusal
        self._shared = shared
        self._record = record
        self._entered: Entered | None = None  # set once the call's turn has come in the queue
        self._rpc: Any = None  # gRPC's object for this call, until the call is over
        self._task: asyncio.Task[Any] | None = None
        self._code = code_pb2.CANCELLED  # unless the call ends otherwise
        self._errors: tuple[BaseException, ...] = ()  # the call's error, and the one that gRPC raised for it

    async def serve(self, _requests: object, rpc: Any) -> AsyncIterator[Any]:
        peer = rpc.peer()
        caller = self._context.caller if self._context.caller.name else anyone_at(peer)
        arrived_s = call_context.current().arrived_s or time.monotonic()  # those that gRPC itself accepts have none
        self._context = replace(self._context, caller=caller, host=host_of(peer), arrived_s=arrived_s)
        call_context.enter(self._context)
        self._rpc, self._task = rpc, asyncio.current_task()
        # Not in a `finally`: if the call ends during a write, this generator is closed only by the garbage collector.
        call_context.on_call_end(self._over)
        self._shared.stalled.follow(self)
        try:
            if self._record is not None:
                who, client = self._context.caller.name or host_of(peer), client_of(peer, self._context.forwarded_for)
                self._entered = await self._shared.call_queue.enter(who, client)
            if self._refusal is not None:
                raise self._refusal
            async with aclosing(self._responses(self._requests(rpc), rpc)) as responses:
                async for response in responses:
                    ours = response
                    if isinstance(response, Translated):
                        ours, response = response.ours, response.message
                    if self._record is not None:
                        self._record.response(ours)
                    if response is None:
                        continue
                    self.waits_since_s = time.monotonic()
                    yield response
                    self.waits_since_s = None
            if self._record is not None:
                rpc.set_trailing_metadata(self._record.trailers())
            self._code = code_pb2.OK
        except BaseException as error:
            await self._fail(error, rpc)
            raise

    def give_up(self, error: SlowReader) -> None:
        """End the call because its client does not read, and free all that the call holds.

        The status stays in gRPC behind the unread response, in case the client reads after all.
        """
        assert self._task is not None, "it was served"
        self.waits_since_s = None
        self._code = code_pb2.RESOURCE_EXHAUSTED
        last_word = asyncio.create_task(self._end_unread(error, self._rpc))
        _last_words.add(last_word)
        last_word.add_done_callback(_last_words.discard)
        self._task.cancel()

    def _requests(self, rpc: Any) -> AsyncGenerator[Any, None]:
        begins = "config" if self._method == SPEAK else "the request"
        who = self._context.caller.limit_key
        later_s = PAUSE_S if self._record is None else None
        return checked(rpc.read, self._shared.request_timeout_s, later_s, begins, self._shared.loop_share.of(who))

    def _responses(self, requests: AsyncGenerator[Any, None], rpc: Any) -> AsyncGenerator[Any, None]:
        """Return the method's responses, whatever kind of method it is."""
        if self._handler.stream_stream:
            responses: AsyncGenerator[Any, None] = self._handler.stream_stream(requests, rpc)
            return responses
        return self._other_responses(requests, rpc)

    async def _other_responses(self, requests: AsyncGenerator[Any, None], rpc: Any) -> AsyncGenerator[Any, None]:
        handler = self._handler
        if handler.stream_unary:
            async with aclosing(requests):
                yield await handler.stream_unary(requests, rpc)
            return
        async with aclosing(requests):
            request = await anext(requests, None)
        if request is None:
            await asyncio.sleep(END_OF_REQUESTS_S)
            raise MalformedMessage("the call ended without a request; send one")
        if handler.unary_unary:
            yield await handler.unary_unary(request, rpc)
            return
        async with aclosing(handler.unary_stream(request, rpc)) as responses:
            async for response in responses:
                yield response

    async def _fail(self, error: BaseException, rpc: Any) -> None:
        """End the RPC with the error's status. Return without that if the RPC is over anyway; the caller re-raises."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                return
            # Nobody cancelled this call. If this error got out, the client would wait for ever (grpc/grpc#29248).
        elif not isinstance(error, Exception):
            return
        status = to_status(error, self._context.request_id)
        is_of_grpc = isinstance(error, grpc.aio.InternalError)  # it could not send, mostly as the client has just left
        if not is_of_grpc:
            self._note(error, status)
        try:
            await rpc.abort_with_status(rpc_status.to_status(status))
        except BaseException as raised:
            self._errors = (error, raised)
            if is_of_grpc and not isinstance(raised, grpc.aio.InternalError):  # the client is still there
                self._note(error, status)
            raise

    def _note(self, error: BaseException, status: status_pb2.Status) -> None:
        """Note with which status the call ends."""
        if not is_expected(error):
            log.error("%s failed", self._method, exc_info=error)
        self._code = status.code
        if self._record is not None:
            self._record.refused(status)

    async def _end_unread(self, error: SlowReader, rpc: Any) -> None:
        try:
            await rpc.abort_with_status(rpc_status.to_status(to_status(error, self._context.request_id)))
        except Exception as raised:  # abort always raises; or the connection has ended
            raised.__traceback__ = None

    def _over(self, _task: object) -> None:
        self._shared.stalled.forget(self)
        self._rpc = self._task = None
        if self._entered is not None:
            self._entered.end(ok=self._code == code_pb2.OK, cancelled=self._code == code_pb2.CANCELLED)
        if self._record is not None:
            self._record.end(self._code, begun=self._entered is not None)
        for error in self._errors:  # their frames refer to the call, so with tracebacks they would form cycles
            error.__traceback__ = None


_last_words: set[asyncio.Task[None]] = set()  # a task without a reference may be garbage-collected
