"""The gRPC servers behind the gateway: follows which of them serve, and makes the calls.

If a server is gone or shutting down, its calls go to another one; speech continues there where it stopped.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sonorant.client import Access
from sonorant.client.clips import SynthesizeStreamCall, session_of
from sonorant.client.errors import SpeechError, from_rpc_error
from sonorant.client.speaking.journal import Journal
from sonorant.client.speaking.session import Session
from sonorant.client.transport.call_opener import CallOpener
from sonorant.client.transport.connections import MAX_SEARCHES
from sonorant.gateway.errors import Refusal, from_speech_error
from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.upstream.server import Server
from sonorant.gateway.upstream.speaking import Route, Speaking
from sonorant.tts.v1.dictionary_service_pb2_grpc import DictionaryServiceStub
from sonorant.tts.v1.speak_pb2 import SpeakConfig, SpeakRequest, SpeakResponse
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest
from sonorant.tts.v1.text_to_speech_service_pb2_grpc import TextToSpeechServiceStub
from sonorant.tts.v1.voice_service_pb2_grpc import VoiceServiceStub

log = logging.getLogger(__name__)

HEALTH_RETRY_S = 1.0
SILENT_S = 5.0  # after so long without an answer from a server, the log says so
READINESS = "readiness"  # the health name that says whether to send calls to a server


class Servers:
    """All servers. Use it as a context: while it is open, it follows the health of every server."""

    def __init__(self, targets: Sequence[str], access: Access, num_connections: int = 1) -> None:
        """`access`: TLS, and the key for health checks if they need one; calls carry the callers' own keys.
        `num_connections`: to each target, which may be several processes on one port; calls are spread over them."""
        bare = Access("", access.tls, access.ca, access.certificate, access.key)
        metadata = (("authorization", f"Bearer {access.api_key}"),) if access.api_key else ()
        self.all = [_server(target, bare, metadata, number) for number in range(num_connections) for target in targets]
        self._watching: list[asyncio.Task[None]] = []
        self._has_served = asyncio.Event()
        self._searches = asyncio.Semaphore(MAX_SEARCHES)

    async def __aenter__(self) -> "Servers":
        self._watching = [asyncio.create_task(_watch(server, self._has_served)) for server in self.all]
        return self

    async def look(self, seconds: float) -> None:
        """Wait until a server serves, and no longer than so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_served.wait(), seconds)

    async def __aexit__(self, *_: object) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for server in self.all:
            await server.channel.close()

    @property
    def serving(self) -> bool:
        return any(server.serving for server in self.all)

    async def unary(
        self, method: Callable[[Server], Callable[..., Awaitable[Any]]], request: Any, call: UpstreamCall
    ) -> Any:
        """Make a unary call to the first server, in the given order, that serves. Raises Refusal."""
        last = _nobody()
        for server in self.all:
            if not server.serving:
                continue
            try:
                return await method(server)(request, metadata=call.metadata)
            except grpc.aio.AioRpcError as error:
                last = from_speech_error(from_rpc_error(error, ""))
                if last.status != 503:
                    break
        raise last

    async def clip(self, request: SynthesizeStreamRequest, call: UpstreamCall) -> AsyncGenerator[SpeakResponse, None]:
        """Yield all responses of SynthesizeStream, in the form of a session's. Raises Refusal. Leaving it early cancels
        the call."""
        route = Route(self.all, call, self._searches)

        async def begin() -> Session:
            stream = SynthesizeStreamCall(route, request)
            try:
                await stream.begin()
            except BaseException:
                stream.cancel()
                raise
            return session_of(route, "", request, stream)

        async with await self._accepted(begin) as session:
            speaking = Speaking(session)
            while (response := await speaking.read()) is not None:
                yield response

    async def speak(self, config: SpeakConfig, call: UpstreamCall, first: Sequence[SpeakRequest] = ()) -> Speaking:
        """Open a session that a server has accepted; the caller must close it. `first`: requests that are known
        already; a text and its end are sent with the call, which saves a round trip. Raises Refusal."""
        route = Route(self.all, call, self._searches)
        resumable = SpeakConfig(resumable=True, pack_codes=True)
        resumable.MergeFrom(config)
        num_opening = _num_opening(first)

        async def begin() -> Session:
            journal, text = Journal(resumable), first[0] if num_opening else SpeakRequest()
            opening = journal.opening(text.utterance_id, text.text, end=num_opening == 2)
            return await Session(route, CallOpener("", resumable, opening=opening), journal).__aenter__()

        speaking = Speaking(await self._accepted(begin))
        for request in first[num_opening:]:
            await speaking.send(request)
        return speaking

    async def _accepted(self, begin: Callable[[], Awaitable[Session]]) -> Session:
        """Call `begin` once for each serving server, until one accepts."""
        last = _nobody()
        for _ in [server for server in self.all if server.serving]:
            try:
                return await begin()
            except grpc.aio.AioRpcError as error:
                last = from_speech_error(from_rpc_error(error, ""))
            except SpeechError as error:
                last = from_speech_error(error)
            if last.status != 503:
                break
        raise last


def _num_opening(first: Sequence[SpeakRequest]) -> int:
    """How many of the first requests a server takes with the config: a text, and its end."""
    if not (first and first[0].text):
        return 0
    return 1 + (len(first) > 1 and first[1].HasField("end") and first[1].utterance_id == first[0].utterance_id)


def _nobody() -> Refusal:
    message = "no Sonorant server is ready; try again soon"
    return Refusal(503, message, code="server_unavailable", retry_after_s=HEALTH_RETRY_S)


def _server(target: str, access: Access, health_metadata: tuple[tuple[str, str], ...], number: int) -> Server:
    """`number`: of the connection to this target."""
    channel = access.channel(target, second=number > 0)
    return Server(
        target,
        channel,
        TextToSpeechServiceStub(channel),
        VoiceServiceStub(channel),
        DictionaryServiceStub(channel),
        health_metadata=health_metadata,
        is_first=number == 0,
    )


async def _watch(server: Server, has_served: asyncio.Event) -> None:
    """Set `serving` to what the server's health service says, for ever. `has_served`: set when it serves."""
    silent = asyncio.create_task(_tell_silent(server))
    try:
        await _follow(server, silent.cancel, has_served)
    finally:
        silent.cancel()


async def _follow(server: Server, on_answer: Callable[[], object], has_served: asyncio.Event) -> None:
    stub = health_pb2_grpc.HealthStub(server.channel)
    while True:
        call = stub.Watch(
            health_pb2.HealthCheckRequest(service=READINESS), wait_for_ready=True, metadata=server.health_metadata
        )
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                on_answer()
                _tell(server, response.status == health_pb2.HealthCheckResponse.SERVING, has_served)
            _tell(server, False, has_served)
        except grpc.aio.AioRpcError as error:
            # If we may not see its health, the server may still serve: assume so, and let calls find out.
            hidden = error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)
            if hidden:
                on_answer()
            _tell(server, hidden, has_served)
        finally:
            call.cancel()
        await asyncio.sleep(HEALTH_RETRY_S)


def _tell(server: Server, serving: bool, has_served: asyncio.Event) -> None:
    if serving:
        has_served.set()
    if serving != server.serving:
        server.serving = serving
        level = logging.INFO if server.is_first else logging.DEBUG
        log.log(level, "the server at %s %s", server.target, "is ready" if serving else "is not ready")


async def _tell_silent(server: Server) -> None:
    """Log why the server has not answered for so long, as a call says it that does not wait for a connection."""
    await asyncio.sleep(SILENT_S)
    if not server.is_first:
        return
    check = health_pb2_grpc.HealthStub(server.channel).Check
    try:
        await check(health_pb2.HealthCheckRequest(), timeout=SILENT_S, metadata=server.health_metadata)
    except grpc.aio.AioRpcError as error:
        log.warning("the gateway keeps trying %s: %s", server.target, from_rpc_error(error, server.target))
