"""Texts that are known beforehand, spoken to their end whatever becomes of the server that began."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from sonorant.client.backoff import delays_s
from sonorant.client.errors import ServerUnavailable, from_rpc_error, is_lost
from sonorant.client.journal import Journal
from sonorant.client.lines import Lines
from sonorant.client.patience import silence_to_ask_ms
from sonorant.client.session import RECONNECT_S, Payload, Session
from sonorant.tts.v1.speak_pb2 import SpeakConfig, SpeakResponse
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest

T = TypeVar("T")

_ID = "u1"


async def until_reached(call: Callable[[], Awaitable[T]], target: str) -> T:
    """The answer to a call of which nothing is left when its server is lost: it is made again, for 20 seconds."""
    deadline_s = asyncio.get_running_loop().time() + RECONNECT_S
    for number, delay_s in enumerate(delays_s()):
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            late = asyncio.get_running_loop().time() + delay_s > deadline_s
            # gRPC itself tries several times where nobody listens, so it is known soon.
            nobody = error.code() is grpc.StatusCode.UNAVAILABLE and number >= 2
            told = from_rpc_error(error, target)
            if late or nobody or not isinstance(told, ServerUnavailable):
                raise told from None
        await asyncio.sleep(delay_s)
    raise AssertionError("delays never end")


async def stream(lines: Lines, target: str, request: SynthesizeStreamRequest) -> AsyncGenerator[Payload, None]:
    """Everything of SynthesizeStream. After a lost server comes a `Resumed`, and the rest from another one."""
    voice = request.config.voice if request.config.HasField("voice") else None
    journal = Journal(voice)
    journal.text(_ID, request.text)
    journal.end(_ID)
    journal.finished = True
    call: Any = lines.stub.SynthesizeStream(request)
    try:
        while (response := await call.read()) is not grpc.aio.EOF:
            payload = response.WhichOneof("payload")
            journal.take(SpeakResponse(utterance_id=_ID, **{payload: getattr(response, payload)}))
            yield getattr(response, payload)
        return
    except grpc.aio.AioRpcError as error:
        if not (is_lost(error) and journal.has_begun):
            raise from_rpc_error(error, target) from None
    finally:
        call.cancel()
    config = SpeakConfig(
        max_lead_ms=request.max_lead_ms,
        timestamps=request.timestamps,
        resumable=True,
        max_silence_ms=silence_to_ask_ms(request.max_lead_ms),
        pack_codes=True,
    )
    if voice is not None:
        config.synthesis.voice.CopyFrom(voice)
    async with Session(lines, target, config, journal=journal) as session:
        async for event in session:
            yield event.payload
