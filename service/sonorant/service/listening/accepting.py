"""A gRPC server that accepts several calls per turn of the event loop.

grpc.aio accepts one call at a time and needs two or three turns of the event loop for each. In a burst, turns are long
and calls pile up; once a thousand wait, gRPC ends new ones with CANCELLED, of any caller. This server runs several
accept loops, so that one turn accepts several calls. From then on a call's steps are those of its caller. It uses
private parts of grpcio: pyproject.toml allows only the versions that are known to have them.
"""

import asyncio
import time
from collections.abc import Sequence
from contextvars import Context, copy_context
from typing import Any

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server

from sonorant.service.calls import context as call_context
from sonorant.service.calls.call_queue import host_of
from sonorant.service.calls.loop_share import Steps
from sonorant.service.listening.wakeups import through_a_pipe

NUM_ACCEPTORS = 512  # some 8 ms of processor time, if so many wait


class AcceptingServer(_server.Server):  # type: ignore[misc]
    def __init__(
        self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Sequence[tuple[str, str | int]]
    ) -> None:
        with through_a_pipe(Steps(call_context.who).on_many):
            super().__init__(None, (), interceptors, options, None, None)
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._interceptors = tuple(interceptors)
        self._tasks: set[asyncio.Task[None]] = set()  # a task without a reference may be garbage-collected

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self._handlers += generic_rpc_handlers
        super().add_generic_rpc_handlers(generic_rpc_handlers)

    async def start(self) -> None:
        await super().start()
        for _ in range(NUM_ACCEPTORS - 1):  # beside gRPC's own
            self._run(self._accept(), copy_context())

    async def _accept(self) -> None:
        while self._server.is_running():
            try:
                call = await self._server._request_call()
            except cygrpc._RequestCallError:  # the server is stopping
                return
            served = cygrpc._handle_rpc(self._handlers, self._interceptors, call, self._loop, False)
            peer = cygrpc._ServicerContext(call, None, None, self._loop).peer()
            context = copy_context()
            arrived = call_context.CallContext(host=host_of(peer), arrived_s=time.monotonic())
            context.run(call_context.enter, arrived)
            self._run(cygrpc._schedule_rpc_coro(served, call, self._loop), context)

    def _run(self, work: Any, context: Context) -> None:
        task = self._loop.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
