"""Requests with the whole text: `Synthesize` and `SynthesizeStream`. They survive the loss of their server."""

from collections.abc import AsyncGenerator
from typing import Any

import grpc

from sonorant.client.events import Payload
from sonorant.client.speaking.journal import Journal
from sonorant.client.speaking.session import Session
from sonorant.client.transport.call_opener import CallOpener
from sonorant.client.transport.connections import Connections
from sonorant.client.transport.response_reader import read_or_cancel
from sonorant.client.transport.retries import Retry
from sonorant.client.transport.server_search import AcceptedCall
from sonorant.client.transport.silence_limits import max_silence_for_lead_ms
from sonorant.tts.v1.speak_pb2 import SessionStarted, SpeakConfig, SpeakResponse
from sonorant.tts.v1.synthesis_pb2 import UtteranceStarted
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest

_ID = "u1"


class SynthesizeStreamCall:
    """A call of SynthesizeStream in the form of a `Speak` call, so that a session can continue it if its server is
    lost."""

    def __init__(self, stub: Any, request: SynthesizeStreamRequest) -> None:
        self._stub = stub
        self._call: Any = stub.SynthesizeStream(request)
        self._first: Any = None  # the first response, once `begin` has read it
        self.cancel = self._call.cancel

    async def begin(self) -> None:
        """Wait for the first response, or raise the error of a server that refuses the call."""
        self._first = await read_or_cancel(self._call)

    async def read(self) -> Any:
        response, self._first = self._first, None
        if response is None:
            response = await self._call.read()
        if response is grpc.aio.EOF:
            return response
        if response.HasField("alive"):
            return SpeakResponse(alive=response.alive)
        payload = response.WhichOneof("payload")
        return SpeakResponse(utterance_id=_ID, **{payload: getattr(response, payload)})

    def accepted(self, started: UtteranceStarted) -> AcceptedCall:
        """Return this call with the SessionStarted that a `Speak` call would have begun with."""
        session = SessionStarted(audio=started.audio, resumable=True, max_silence_ms=started.max_silence_ms)
        return AcceptedCall(self._stub, self, session)


async def stream(
    connections: Connections, target: str, request: SynthesizeStreamRequest, retry: Retry
) -> AsyncGenerator[Payload, None]:
    """Yield every message of SynthesizeStream. If the server is lost, a `Resumed` follows, and the rest comes from
    another server."""
    request.max_silence_ms = max_silence_for_lead_ms(request.max_lead_ms)
    call = SynthesizeStreamCall(connections.stub, request)
    session = session_of(connections, target, request, call)
    session.retry = retry
    async with session:
        async for event in session:
            yield event.payload


def session_of(
    connections: Connections, target: str, request: SynthesizeStreamRequest, call: SynthesizeStreamCall
) -> Session:
    """Return a session that reads the call, and continues it if its server is lost."""
    voice = request.config.voice if request.config.HasField("voice") else None
    config = SpeakConfig(
        max_lead_ms=request.max_lead_ms,
        timestamps=request.timestamps,
        resumable=True,
        max_silence_ms=request.max_silence_ms if request.HasField("max_silence_ms") else None,
        pack_codes=True,
    )
    if request.HasField("scheduling"):
        config.scheduling.CopyFrom(request.scheduling)
    if voice is not None:
        config.synthesis.voice.CopyFrom(voice)
    journal = Journal(config)
    journal.text(_ID, request.text)
    journal.end(_ID)
    journal.finished = True
    return Session(connections, CallOpener(target, config), journal, call)
