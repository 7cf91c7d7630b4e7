"""One caller's speech: on one of the servers, and on another one if that is lost, with the client library's session."""

import asyncio
import math
from contextlib import suppress
from typing import Any

from sonorant.client.errors import SpeechError
from sonorant.client.speaking.session import Session
from sonorant.client.transport.connections import Connections
from sonorant.gateway.errors import from_speech_error
from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.upstream.server import Server
from sonorant.tts.v1.speak_pb2 import SpeakRequest, SpeakResponse
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest


class Route(Connections):
    """The servers as one caller's speech sees them: each of its calls goes to the serving one with the fewest calls,
    but to none twice while there is another."""

    def __init__(self, servers: list[Server], call: UpstreamCall, searches: asyncio.Semaphore) -> None:
        """`searches`: at most MAX_SEARCHES at a time, of all callers."""
        self._servers = servers
        self._metadata = call.metadata
        self._tried: list[Server] = []
        self._abandoned = set()
        self.fastest_answer_s = math.inf
        self.searches = searches

    @property
    def stub(self) -> "Route":
        return self

    def switch_from(self, stub: Any) -> "Route":
        return self

    def answered(self, stub: Any, took_s: float) -> None:
        self.fastest_answer_s = min(self.fastest_answer_s, took_s)

    # What a session needs of a stub.

    def Speak(self, *, metadata: tuple[tuple[str, str], ...] = ()) -> Any:
        server = self._choose()
        return server.count(server.speech.Speak(metadata=(*self._metadata, *metadata)))

    def SynthesizeStream(self, request: SynthesizeStreamRequest) -> Any:
        server = self._choose()
        return server.count(server.speech.SynthesizeStream(request, metadata=self._metadata))

    def _choose(self) -> Server:
        """Return the server for the next call. If none serves, one may be back before health says so."""
        serving = [server for server in self._servers if server.serving] or self._servers
        if not (left := [server for server in serving if server not in self._tried]):
            self._tried, left = self._tried[-1:], [server for server in serving if server not in self._tried[-1:]]
        server = min(left or serving, key=lambda server: server.running)
        self._tried.append(server)
        return server


class Speaking:
    """A session, whose errors are for the gateway's callers."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def send(self, request: SpeakRequest) -> None:
        """Send a request. If the call is over, ignore it: reading from the call says why."""
        with suppress(SpeechError):
            await self._session.send(request)

    async def finish(self) -> None:
        """No more requests will come."""
        with suppress(SpeechError):
            await self._session.finish()

    async def read(self) -> SpeakResponse | None:
        """The next response of whichever server speaks, or None at the end. Raises Refusal."""
        try:
            while (message := await self._session.read()) is not None:
                if isinstance(message, SpeakResponse):
                    return message
        except SpeechError as error:
            raise from_speech_error(error) from None
        return None

    def close(self) -> None:
        """Cancel the call, with everything that is still being spoken."""
        self._session.close()
