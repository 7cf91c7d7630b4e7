"""The gRPC servers behind the gateway: which of them serve, which one takes the next call, and the calls themselves.

A call that a server turns away before it has said anything, because it is going or gone, is made to another one.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sonorant.client import Access
from sonorant.client.errors import from_rpc_error, is_lost
from sonorant.gateway.calls import Call
from sonorant.gateway.errors import Refusal, from_speech_error
from sonorant.tts.v1.speak_pb2 import SpeakConfig, SpeakRequest, SpeakResponse
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest, SynthesizeStreamResponse
from sonorant.tts.v1.text_to_speech_service_pb2_grpc import TextToSpeechServiceStub
from sonorant.tts.v1.voice_service_pb2_grpc import VoiceServiceStub

log = logging.getLogger(__name__)

HEALTH_RETRY_S = 1.0
READINESS = "readiness"  # the health name that says whether to send calls to a server

_Opened = Any


@dataclass(eq=False)
class Server:
    target: str
    channel: Any
    speech: TextToSpeechServiceStub
    voices: VoiceServiceStub
    serving: bool = False
    running: int = 0  # calls of ours that speak
    health_metadata: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class Servers:
    """Use as a context: while it is open, the health of every server is followed."""

    def __init__(self, targets: Sequence[str], access: Access) -> None:
        """`access`: TLS, and the key for health checks where those need one; callers bring their own keys."""
        bare = Access("", access.tls, access.ca, access.certificate, access.key)
        metadata = (("authorization", f"Bearer {access.api_key}"),) if access.api_key else ()
        self.all = [_server(target, bare, metadata) for target in targets]
        self._watching: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Servers":
        self._watching = [asyncio.create_task(_watch(server)) for server in self.all]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for server in self.all:
            await server.channel.close()

    @property
    def serving(self) -> bool:
        return any(server.serving for server in self.all)

    async def unary(self, method: Callable[[Server], Callable[..., Awaitable[Any]]], request: Any, call: Call) -> Any:
        """The answer of the first server, in the order given, that serves. Raises Refusal."""

        async def ask(server: Server) -> Any:
            return await method(server)(request, metadata=call.metadata)

        return await self._first(ask, by_load=False)

    async def clip(
        self, request: SynthesizeStreamRequest, call: Call
    ) -> AsyncGenerator[SynthesizeStreamResponse, None]:
        """Everything that SynthesizeStream answers. Raises Refusal. Leaving it early cancels the call."""

        async def begin(server: Server) -> tuple[Server, Any, Any]:
            stream = server.speech.SynthesizeStream(request, metadata=call.metadata)
            server.running += 1
            try:
                return server, stream, await stream.read()
            except BaseException:
                server.running -= 1
                stream.cancel()
                raise

        server, stream, response = await self._first(begin)
        try:
            while response is not grpc.aio.EOF:
                yield response
                response = await stream.read()
        except grpc.aio.AioRpcError as error:
            raise from_speech_error(from_rpc_error(error, server.target)) from None
        finally:
            server.running -= 1
            stream.cancel()

    async def speak(self, config: SpeakConfig, call: Call, first: Sequence[SpeakRequest] = ()) -> "Speaking":
        """A Speak RPC that has been let in. `first`: what is said already; it goes with the call, which saves a round
        trip. Raises Refusal. To be closed."""

        async def begin(server: Server, first: Sequence[SpeakRequest]) -> Speaking:
            speaking = Speaking(server, server.speech.Speak(metadata=call.metadata))
            try:
                await speaking.begin(config, first)
            except BaseException:
                speaking.close()
                raise
            return speaking

        async def begin_with_first(server: Server) -> Speaking:
            try:
                return await begin(server, first)
            except grpc.aio.AioRpcError as error:
                if not first or error.code() is not grpc.StatusCode.INTERNAL or not is_lost(error):
                    raise
            # A refusal may have come during a write, which overwrites what the server said: ask, and hear it out.
            speaking = await begin(server, ())
            for request in first:
                await speaking.send(request)
            return speaking

        opened: Speaking = await self._first(begin_with_first)
        return opened

    async def _first(self, ask: Callable[[Server], Awaitable[_Opened]], *, by_load: bool = True) -> _Opened:
        """Of the first server that serves and takes it: in the order given, or those with the fewest calls first."""
        order = sorted(self.all, key=lambda server: server.running) if by_load else self.all
        last = Refusal(
            503, "no Sonorant server is ready; try again soon", code="server_unavailable", retry_after_s=HEALTH_RETRY_S
        )
        for server in order:
            if not server.serving:
                continue
            try:
                return await ask(server)
            except grpc.aio.AioRpcError as error:
                last = from_speech_error(from_rpc_error(error, server.target))
                if last.status != 503:
                    raise last from None
        raise last


class Speaking:
    """One Speak RPC."""

    def __init__(self, server: Server, stream: Any) -> None:
        self._server = server
        self._stream = stream
        self._open = True
        self._writing = asyncio.Lock()  # a call takes one write at a time
        server.running += 1

    async def begin(self, config: SpeakConfig, first: Sequence[SpeakRequest]) -> None:
        """Raises what the server refuses it with, so that nothing is lost in a call that was not let in."""
        with suppress(asyncio.InvalidStateError):  # over already: what is read tells why
            for request in (SpeakRequest(config=config), *first):
                await self._stream.write(request)
        await self._stream.read()  # the session

    async def send(self, request: SpeakRequest) -> None:
        """Nothing is said of a call that is over: what is read from it tells."""
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            async with self._writing:
                await self._stream.write(request)

    async def finish(self) -> None:
        """No more text."""
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            async with self._writing:
                await self._stream.done_writing()

    async def read(self) -> SpeakResponse | None:
        """None at the end. Raises Refusal."""
        try:
            response = await self._stream.read()
        except grpc.aio.AioRpcError as error:
            raise from_speech_error(from_rpc_error(error, self._server.target)) from None
        return None if response is grpc.aio.EOF else response

    def close(self) -> None:
        """Stops what is still spoken."""
        if self._open:
            self._open = False
            self._server.running -= 1
            self._stream.cancel()


def _server(target: str, access: Access, health_metadata: tuple[tuple[str, str], ...]) -> Server:
    channel = access.channel(target)
    return Server(
        target,
        channel,
        TextToSpeechServiceStub(channel),
        VoiceServiceStub(channel),
        health_metadata=health_metadata,
    )


async def _watch(server: Server) -> None:
    """Keep `serving` true to what the server's health service says."""
    stub = health_pb2_grpc.HealthStub(server.channel)
    while True:
        call = stub.Watch(
            health_pb2.HealthCheckRequest(service=READINESS), wait_for_ready=True, metadata=server.health_metadata
        )
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                _tell(server, response.status == health_pb2.HealthCheckResponse.SERVING)
            _tell(server, False)
        except grpc.aio.AioRpcError as error:
            # A server whose health is not for us may serve all the same: calls will tell.
            hidden = error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)
            _tell(server, hidden)
        finally:
            call.cancel()
        await asyncio.sleep(HEALTH_RETRY_S)


def _tell(server: Server, serving: bool) -> None:
    if serving != server.serving:
        server.serving = serving
        log.info("the server at %s %s", server.target, "serves" if serving else "does not serve")
