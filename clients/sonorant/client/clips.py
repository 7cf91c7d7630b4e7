"""Calls whose whole text is known at the start; they survive the loss of their server."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from sonorant.client.backoff import delays_s
from sonorant.client.errors import ServerUnavailable, from_rpc_error
from sonorant.client.journal import Journal
from sonorant.client.lines import Lines
from sonorant.client.patience import silence_to_ask_ms
from sonorant.client.seeking import Found
from sonorant.client.session import RECONNECT_S, Payload, Session
from sonorant.tts.v1.speak_pb2 import SessionStarted, SpeakConfig, SpeakResponse
from sonorant.tts.v1.synthesis_pb2 import UtteranceStarted
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest

T = TypeVar("T")

_ID = "u1"


async def until_reached(call: Callable[[], Awaitable[T]], target: str) -> T:
    """Make a unary call and return its answer. If its server is lost, make the call again, for up to 20 seconds."""
    deadline_s = asyncio.get_running_loop().time() + RECONNECT_S
    for number, delay_s in enumerate(delays_s()):
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            late = asyncio.get_running_loop().time() + delay_s > deadline_s
            # gRPC itself has tried several times by then, so give up soon where nothing listens.
            nobody = error.code() is grpc.StatusCode.UNAVAILABLE and number >= 2
            told = from_rpc_error(error, target)
            if late or nobody or not isinstance(told, ServerUnavailable):
                raise told from None
        await asyncio.sleep(delay_s)
    raise AssertionError("delays never end")


class Whole:
    """A call of SynthesizeStream in the form of a `Speak` call, so that a session can continue it if its server is
    lost."""

    def __init__(self, stub: Any, request: SynthesizeStreamRequest) -> None:
        self._stub = stub
        self._call: Any = stub.SynthesizeStream(request)
        self.cancel = self._call.cancel

    async def read(self) -> Any:
        response = await self._call.read()
        if response is grpc.aio.EOF:
            return response
        if response.HasField("alive"):
            return SpeakResponse(alive=response.alive)
        payload = response.WhichOneof("payload")
        return SpeakResponse(utterance_id=_ID, **{payload: getattr(response, payload)})

    def found(self, receipt: UtteranceStarted) -> Found:
        started = SessionStarted(audio=receipt.audio, resumable=True, max_silence_ms=receipt.max_silence_ms)
        return Found(self._stub, self, started)


async def stream(lines: Lines, target: str, request: SynthesizeStreamRequest) -> AsyncGenerator[Payload, None]:
    """Yield every message of SynthesizeStream. If the server is lost, a `Resumed` follows, and the rest comes from
    another server."""
    voice = request.config.voice if request.config.HasField("voice") else None
    journal = Journal(voice)
    journal.text(_ID, request.text)
    journal.end(_ID)
    journal.finished = True
    config = SpeakConfig(
        max_lead_ms=request.max_lead_ms,
        timestamps=request.timestamps,
        resumable=True,
        max_silence_ms=silence_to_ask_ms(request.max_lead_ms),
        pack_codes=True,
    )
    if voice is not None:
        config.synthesis.voice.CopyFrom(voice)
    request.max_silence_ms = config.max_silence_ms
    whole = Whole(lines.stub, request)
    async with Session(lines, target, config, journal=journal, begun=whole) as session:
        async for event in session:
            yield event.payload
