"""Attacks by many small things: what `tests.measure.attacks` does beside its large ones."""

import asyncio
import random
from collections.abc import Awaitable, Iterable
from contextlib import suppress

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sonorant.service.audio.codes import Kind, record
from sonorant.tts.v1 import speak_pb2, voice_service_pb2, voice_service_pb2_grpc
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    DecodeRequest,
    GetCapabilitiesRequest,
    SynthesizeRequest,
    SynthesizeStreamRequest,
)
from tests.fuzz.messages import random_message
from tests.service.harness import Stub, say

HEADER_BYTES = 32  # of stored codes
MANY_FIELDS = [(f"x-{number}", "y" * 70) for number in range(60)]  # nearly all the metadata that a call may have


def channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),))


async def together(calls: Iterable[Awaitable[object]]) -> None:
    await asyncio.gather(*calls, return_exceptions=True)


async def first_answer(call: grpc.aio.StreamStreamCall | grpc.aio.UnaryStreamCall) -> None:
    with suppress(grpc.aio.AioRpcError):
        await call.read()
    call.cancel()


async def reflection(address: str, rng: random.Random) -> None:
    ask = reflection_pb2.ServerReflectionRequest(file_containing_symbol="sonorant.tts.v1.TextToSpeechService")

    async def question(stub: reflection_pb2_grpc.ServerReflectionStub) -> None:
        async for _ in stub.ServerReflectionInfo(iter([ask] * 20)):
            pass

    async with channel(address) as here:
        await together(question(reflection_pb2_grpc.ServerReflectionStub(here)) for _ in range(50))


async def health(address: str, rng: random.Random) -> None:
    async with channel(address) as here:
        check = health_pb2_grpc.HealthStub(here).Check
        await together(check(health_pb2.HealthCheckRequest()) for _ in range(1000))


async def revisions(address: str, rng: random.Random) -> None:
    async def revise(here: grpc.aio.Channel) -> None:
        call = Stub(here).Speak()
        for request in (speak_pb2.SpeakRequest(config={}), say("word " * 800)):
            await call.write(request)
        for _ in range(200):
            text = "x" * rng.randint(1, 50)
            await call.write(speak_pb2.SpeakRequest(revise={"from_char": rng.randrange(3000, 4000), "text": text}))
        call.cancel()

    async with channel(address) as here:
        await together(revise(here) for _ in range(10))


async def tiny_texts(address: str, rng: random.Random) -> None:
    async def write(here: grpc.aio.Channel) -> None:
        call = Stub(here).Speak()
        await call.write(speak_pb2.SpeakRequest(config={}))
        for _ in range(2000):
            await call.write(say("a "))
        call.cancel()

    async with channel(address) as here:
        await together(write(here) for _ in range(20))


async def sessions(address: str, rng: random.Random) -> None:
    """As many as one address may have, with eight utterances each, all of which begin and end at the same time."""

    async def begin(here: grpc.aio.Channel) -> None:
        call = Stub(here).Speak()
        await call.write(speak_pb2.SpeakRequest(config={}))
        for number in range(8):
            await call.write(say("word ", f"u{number}"))
        await call.read()

    async with channel(address) as here:
        await together(begin(here) for _ in range(700))


async def streams_given_up(address: str, rng: random.Random) -> None:
    async with channel(address) as here:
        request = SynthesizeStreamRequest(text="word " * 100)
        await together(first_answer(Stub(here).SynthesizeStream(request)) for _ in range(40))


async def nothing_to_resume(address: str, rng: random.Random) -> None:
    resume = {
        "checkpoint": "x" * 64,
        "received_samples": 2**63,
        "segments": [{} for _ in range(4000)],
        "committed_chars": range(4000),
    }

    async def ask(here: grpc.aio.Channel) -> None:
        call = Stub(here).Speak()
        for request in (speak_pb2.SpeakRequest(config={}), speak_pb2.SpeakRequest(resume=resume)):
            await call.write(request)
        await call.read()
        await first_answer(call)

    async with channel(address) as here:
        await together(ask(here) for _ in range(20))


async def forged_codes(address: str, rng: random.Random) -> None:
    """Behind a header of this server's own: nearly as many records as there may be, with any bits."""
    async with channel(address) as here:
        config = {"audio": {"encoding": "AUDIO_ENCODING_CODES"}, "sampling": {"max_frames": 2}}
        spoken = (await Stub(here).Synthesize(SynthesizeRequest(text="Hi.", config=config))).audio
        header, frame_bytes = spoken[:HEADER_BYTES], -(-spoken[5] * spoken[6] // 8)
        kinds = (Kind.FRAMES, Kind.PAST) if rng.random() < 0.5 else [*Kind]
        records = (record(rng.choice(kinds), 1, rng.randbytes(frame_bytes)) for _ in range(19_000))
        data = header + b"".join(records)
        await together(first_answer(Stub(here).Decode(DecodeRequest(codes=data))) for _ in range(8))


async def metadata(address: str, rng: random.Random) -> None:
    async with channel(address) as here:
        ask = Stub(here).GetCapabilities
        await together(ask(GetCapabilitiesRequest(), metadata=MANY_FIELDS) for _ in range(200))


async def uploads(address: str, rng: random.Random) -> None:
    async def upload(here: grpc.aio.Channel) -> None:
        call = voice_service_pb2_grpc.VoiceServiceStub(here).UploadVoice()
        for _ in range(rng.randrange(20)):
            await call.write(random_message(voice_service_pb2.UploadVoiceRequest.DESCRIPTOR, rng))
        call.cancel()

    async with channel(address) as here:
        await together(upload(here) for _ in range(30))


async def languages(address: str, rng: random.Random) -> None:
    async with channel(address) as here:
        request = SynthesizeRequest(text="Hi.", config={"language": "\u00e9" * 900_000})
        await together(Stub(here).Synthesize(request) for _ in range(4))


SMALL_ATTACKS = (
    *(reflection, health, revisions, tiny_texts, sessions, streams_given_up, nothing_to_resume, forged_codes, metadata),
    *(uploads, languages),
)
