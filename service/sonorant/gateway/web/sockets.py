"""WebSockets: accepts them only with a key that a server knows, and limits how long it waits for callers."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import WSMessage, WSMsgType, web
from aiohttp.typedefs import Handler

from sonorant.gateway.errors import Refusal
from sonorant.gateway.upstream.calls import SUBPROTOCOL
from sonorant.gateway.upstream.turn import LoopTurn
from sonorant.gateway.web.context import CALL, DOOR, KEYS, METRICS
from sonorant.gateway.web.drain import CONVERSATIONS, DRAINING, Conversation
from sonorant.gateway.web.http import WriteTimeout
from sonorant.gateway.web.json_input import decode
from sonorant.gateway.web.json_text import JsonText, json_text

HEARTBEAT_S = 30.0
MAX_UNANSWERED = 10  # pings; buffers between us and a listener may hold minutes of audio
MAX_MESSAGE_BYTES = 4 * 1024 * 1024  # as in vLLM-Omni; a recording of 3 MiB
GOING_AWAY = 1001


def conversing(kind: Callable[[web.Request, web.WebSocketResponse], Conversation]) -> Handler:
    """Make a handler that runs a conversation on each socket. The conversation is counted, and told when the gateway
    shuts down."""

    async def handler(request: web.Request) -> web.StreamResponse:
        socket = await _accept(request)
        conversation = kind(request, socket)
        count = request.app[METRICS].sockets.labels(request[DOOR])
        count.inc()
        request.app[CONVERSATIONS].open.add(conversation)
        try:
            await conversation.run()
        finally:
            request.app[CONVERSATIONS].open.discard(conversation)
            count.dec()
        return socket

    return handler


async def _accept(request: web.Request) -> web.WebSocketResponse:
    """Accept a WebSocket. Raises Refusal, which then answers the handshake."""
    if request.app[DRAINING].is_set():
        raise Refusal(503, "this gateway is shutting down; connect again", code="draining", retry_after_s=1.0)
    await request.app[KEYS].check(request[CALL])
    socket = web.WebSocketResponse(
        protocols=(SUBPROTOCOL,), autoping=False, compress=False, max_msg_size=MAX_MESSAGE_BYTES
    )
    await socket.prepare(request)
    return socket


class Receiver:
    """Reads from a socket. It pings a caller who says nothing, so that proxies keep the connection open, and gives up
    one who answers none of many pings: a slow listener answers only once it has heard the audio before them."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse, turn: LoopTurn) -> None:
        """`turn`: of the caller, who may have sent thousands of messages together."""
        self._transport = request.transport
        self._socket = socket
        self._turn = turn
        self._num_unanswered = 0  # pings since the caller last said something

    async def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message, or None if the other side is gone. Raises TimeoutError, or Refusal if it is not a JSON
        object."""
        async with asyncio.timeout(timeout_s):
            while True:
                await self._turn.end()
                if (message := await self._next()) is None:
                    return None
                if message.type is WSMsgType.PING:
                    await self._socket.pong(message.data)
                elif message.type is not WSMsgType.PONG:
                    break
        match message.type:
            case WSMsgType.TEXT:
                data = decode(message.data)
                if not isinstance(data, dict):
                    raise Refusal(400, "a message must be a JSON object")
                return data
            case WSMsgType.BINARY:
                raise Refusal(400, "messages must be JSON in text frames, not in binary ones")
        return None

    async def _next(self) -> WSMessage | None:
        while self._num_unanswered < MAX_UNANSWERED:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    message = await self._socket.receive()
            except TimeoutError:
                # Behind audio that waits to be taken, a ping would wait, too; `WriteTimeout` looks after that.
                if self._transport is not None and not self._transport.get_write_buffer_size():
                    self._num_unanswered += 1
                    await self._socket.ping()
                continue
            self._num_unanswered = 0
            return message
        return None


class Sender:
    """Writes to a socket; waits until the listener has taken most of what was sent before."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._socket = socket
        self._write_timeout = WriteTimeout(request)

    async def send(self, message: dict[str, Any] | bytes) -> None:
        """Raises ConnectionError."""
        with self._write_timeout:
            if isinstance(message, dict):
                message = json_text(message)
            kind = WSMsgType.TEXT if isinstance(message, JsonText) else WSMsgType.BINARY
            await self._socket.send_frame(message, kind)

    def end(self) -> None:
        self._write_timeout.end()
