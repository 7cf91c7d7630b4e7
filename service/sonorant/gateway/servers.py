"""The gRPC servers behind the gateway: follows which of them serve, chooses one for each call, and makes the calls.

If a server is gone or shutting down and refuses a call before it has answered anything, the call goes to another one.
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
    running: int = 0  # our calls that are being spoken
    health_metadata: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class Servers:
    """All servers. Use it as a context: while it is open, it follows the health of every server."""

    def __init__(self, targets: Sequence[str], access: Access) -> None:
        """`access`: TLS, and the key for health checks if they need one; calls carry the callers' own keys."""
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
        """Make a unary call to the first server, in the given order, that serves. Raises Refusal."""

        async def ask(server: Server) -> Any:
            return await method(server)(request, metadata=call.metadata)

        return await self._first(ask, by_load=False)

    async def clip(
        self, request: SynthesizeStreamRequest, call: Call
    ) -> AsyncGenerator[SynthesizeStreamResponse, None]:
        """Yield all responses of SynthesizeStream. Raises Refusal. Leaving it early cancels the call."""

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
        """Open a Speak RPC that a server has accepted; the caller must close it. `first`: requests that are known
        already; they are sent with the call, which saves a round trip. Raises Refusal."""

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
            # A refusal may have come during a write, which overwrites the server's status. Try again and read it first.
            speaking = await begin(server, ())
            for request in first:
                await speaking.send(request)
            return speaking

        opened: Speaking = await self._first(begin_with_first)
        return opened

    async def _first(self, ask: Callable[[Server], Awaitable[_Opened]], *, by_load: bool = True) -> _Opened:
        """Call `ask` with one serving server after another until one accepts: in the given order, or `by_load` those
        with the fewest calls first."""
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
        """Send the first requests and wait for the session. Raises the server's refusal, so that no request is lost in
        a call that was refused."""
        with suppress(asyncio.InvalidStateError):  # the call is over already; reading from it says why
            for request in (SpeakRequest(config=config), *first):
                await self._stream.write(request)
        await self._stream.read()  # the session

    async def send(self, request: SpeakRequest) -> None:
        """Send a request. If the call is over, ignore it: reading from the call says why."""
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            async with self._writing:
                await self._stream.write(request)

    async def finish(self) -> None:
        """Half-close the call: no more requests will come."""
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            async with self._writing:
                await self._stream.done_writing()

    async def read(self) -> SpeakResponse | None:
        """The next response, or None at the end. Raises Refusal."""
        try:
            response = await self._stream.read()
        except grpc.aio.AioRpcError as error:
            raise from_speech_error(from_rpc_error(error, self._server.target)) from None
        return None if response is grpc.aio.EOF else response

    def close(self) -> None:
        """Cancel the call, with everything that is still being spoken."""
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
    """Set `serving` to what the server's health service says, for ever."""
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
            # If we may not see its health, the server may still serve: assume so, and let calls find out.
            hidden = error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)
            _tell(server, hidden)
        finally:
            call.cancel()
        await asyncio.sleep(HEALTH_RETRY_S)


def _tell(server: Server, serving: bool) -> None:
    if serving != server.serving:
        server.serving = serving
        log.info("the server at %s %s", server.target, "is ready" if serving else "is not ready")
