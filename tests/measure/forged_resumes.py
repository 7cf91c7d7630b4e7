"""Attacks by utterances that claim to go on: what `tests.measure.attacks` does beside its others.

Everything in a `Resume` is the client's word. The server can check that its codes are possible, but not that it, or
another server, ever made them.
"""

import random

import grpc

from sonorant.tts.v1 import audio_pb2, speak_pb2
from sonorant.tts.v1.audio_pb2 import AudioEncoding
from tests.measure.small_attacks import channel, first_answer, together
from tests.service.harness import Stub, end, say

RESUMING = (("sonorant-resuming", "1"),)
ALL_RECEIVED = 2**62  # samples
NUM_FRAMES = 900  # 72 s


async def begun(stub: Stub, encoding: AudioEncoding) -> tuple[speak_pb2.Resume, bytes]:
    """How an utterance that has just begun is resumed, and the codes of a frame."""
    call = stub.Speak()
    config = speak_pb2.SpeakConfig(resumable=True, pack_codes=True, synthesis={"audio": {"encoding": encoding}})
    for request in (speak_pb2.SpeakRequest(config=config), say("Hello.")):
        await call.write(request)
    while (response := await call.read()) is not grpc.aio.EOF:
        if response.HasField("started"):
            call.cancel()
            started = response.started
            return speak_pb2.Resume(checkpoint=started.checkpoint, replay=started.replay), bytes(2 * started.codebooks)
    raise grpc.aio.UsageError("it did not begin")


async def resume_many(address: str, resume: speak_pb2.Resume, num_sessions: int, num_utterances: int) -> None:
    async def ask(here: grpc.aio.Channel) -> None:
        call = Stub(here).Speak(metadata=RESUMING)
        await call.write(speak_pb2.SpeakRequest(config={"resumable": True}))
        for number in range(num_utterances):
            utterance_id = f"u{number}"
            await call.write(speak_pb2.SpeakRequest(resume=resume, utterance_id=utterance_id))
            await call.write(say("word " * 100, utterance_id))
            await call.write(end(utterance_id))
        for _ in range(3):
            await call.read()
        await first_answer(call)

    async with channel(address) as here:
        await together(ask(here) for _ in range(num_sessions))


async def much_received(address: str, rng: random.Random) -> None:
    """Utterances of a minute, all of which the client has, so that the server only brings its encoders to their end."""
    async with channel(address) as here:
        encoding = rng.choice((audio_pb2.AUDIO_ENCODING_OGG_OPUS, audio_pb2.AUDIO_ENCODING_PCM_S16LE))
        resume, codes = await begun(Stub(here), encoding)
    resume.received_samples = ALL_RECEIVED
    resume.segments.add(segment=0, codes=codes * NUM_FRAMES)
    await resume_many(address, resume, 20, 4)


async def nothing_received(address: str, rng: random.Random) -> None:
    """Utterances of one frame, which go ahead of what others begin."""
    async with channel(address) as here:
        resume, codes = await begun(Stub(here), audio_pb2.AUDIO_ENCODING_PCM_S16LE)
    resume.received_samples = 4000
    resume.segments.add(segment=0, codes=codes * 4)
    await resume_many(address, resume, 100, 1)


FORGED_RESUMES = (much_received, nothing_received)
