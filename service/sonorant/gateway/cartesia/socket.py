"""GET /tts/websocket: several contexts at the same time on one socket.

Some clients, such as LiveKit's, do not report that the listener interrupted. What is then spoken for nothing is limited
by the server's lead and by the number of contexts.
"""

import asyncio
import secrets
from collections import deque

from aiohttp import web

from sonorant.gateway.cartesia.answers import done_message, error_message
from sonorant.gateway.cartesia.context import Context
from sonorant.gateway.cartesia.request import Message
from sonorant.gateway.errors import Refusal
from sonorant.gateway.upstream.turn import LoopTurn
from sonorant.gateway.web.context import CALL, CATALOGS, CONFIG, METRICS, SERVERS
from sonorant.gateway.web.drain import DRAINING
from sonorant.gateway.web.json_input import parse
from sonorant.gateway.web.sockets import GOING_AWAY, Receiver, Sender, conversing

MAX_CONTEXTS = 8
MAX_REMEMBERED = 256
IDLE_S = 300.0  # as in Cartesia's protocol


class _Conversation:
    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._request = request
        self._socket = socket
        self._sender = Sender(request, socket)
        self._receiver = Receiver(request, socket, LoopTurn())
        self._contexts: dict[str, Context] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._dead: deque[str] = deque(
            maxlen=MAX_REMEMBERED
        )  # failed or cancelled: the rest of their texts is not spoken
        self._over: deque[str] = deque(maxlen=MAX_REMEMBERED)  # spoken to their end: too late for a cancel

    async def go_away(self) -> None:
        if not self._contexts:
            await self._socket.close(code=GOING_AWAY)

    async def run(self) -> None:
        try:
            while True:
                context_id = None
                try:
                    data = await self._receiver.receive(IDLE_S)
                    if data is None:
                        return
                    context_id = data.get("context_id")
                    await self._take(parse(Message, data))
                except TimeoutError:
                    if not self._contexts:
                        await self._socket.close()
                        return
                except Refusal as refusal:
                    await self._sender.send(error_message(refusal, context_id if isinstance(context_id, str) else None))
        except ConnectionError:
            pass  # the caller is gone
        finally:
            self._sender.end()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, message: Message) -> None:
        context_id = message.context_id or f"ctx-{secrets.token_hex(8)}"
        context = self._contexts.get(context_id)
        if message.cancel:
            if context is not None:
                context.cancel()
            if context is not None or context_id not in self._over:
                self._dead.append(context_id)
        elif context is not None:
            context.put(message)
        elif context_id in self._dead:
            pass
        elif message.transcript.strip():
            await self._open(context_id, message)
        elif not message.more:  # the end of a context without any text
            await self._sender.send(done_message(context_id))

    async def _open(self, context_id: str, message: Message) -> None:
        if self._request.app[DRAINING].is_set():
            raise Refusal(503, "this gateway is shutting down; connect again", code="draining", retry_after_s=1.0)
        if len(self._contexts) >= MAX_CONTEXTS:
            raise Refusal(
                429, f"{MAX_CONTEXTS} contexts are open on this socket; end or cancel one", code="too_many_contexts"
            )
        catalog = await self._request.app[CATALOGS].get(self._request[CALL])
        text_format = self._request.app[CONFIG].cartesia_text_format
        context = Context(context_id, message, message.to_speak_config(catalog, text_format))
        context.put(message)
        self._contexts[context_id] = context
        task = asyncio.create_task(self._speak(context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _speak(self, context: Context) -> None:
        app = self._request.app
        try:
            try:
                await context.run(app[SERVERS], self._request[CALL], app[METRICS], self._sender.send)
            finally:  # before the caller gets `done`, because it may use the id again at once
                del self._contexts[context.context_id]
                (self._dead if context.failed else self._over).append(context.context_id)
            if not context.failed:
                await self._sender.send(done_message(context.context_id, context.ending))
        except ConnectionError:
            if self._request.transport is not None:
                self._request.transport.abort()
        finally:
            if app[DRAINING].is_set():
                await self.go_away()


tts_websocket = conversing(_Conversation)
