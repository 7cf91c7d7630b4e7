"""Clients behind a front, as they come without our library: listeners whose calls stay, and one of everything else."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service.harness import Stub, Transcript, config, failure, read_all, read_until, say

# What clients that do not resume are advised to have: docs/scaling.md.
RETRIES = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


def channel_to(port: int) -> grpc.aio.Channel:
    """To a front: one connection, and the retry policy."""
    options = (("grpc.service_config", json.dumps(RETRIES)), ("grpc.use_local_subchannel_pool", 1))
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)


class Listener:
    """A session with an utterance that has begun and is not over."""

    def __init__(self, stub: Any) -> None:
        self._call = stub.Speak()
        self.transcript = Transcript()

    async def begin(self) -> "Listener":
        await self._call.write(speak_pb2.SpeakRequest(config=config()))
        await self._call.write(say("ab", "x"))
        await read_until(self._call, self.transcript, "audio")
        return self

    async def finish(self) -> None:
        """Say the rest, and hear all of it."""
        await self._call.write(say("cd", "x"))
        await self._call.done_writing()
        await read_all(self._call, self.transcript)
        assert self.transcript.done["x"].stats.audio_ms == 4 * 2 * 80
        assert len(self.transcript.pcm["x"]) == 4 * 2 * 1920 * 2

    async def end(self) -> grpc.StatusCode:
        """Of the call, once what can be said and heard of the rest is."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.finish()
        return await self._call.code()


async def listeners(stub: Any, count: int) -> list[Listener]:
    """One after the other, as people come; so each is placed knowing of those before."""
    return [await Listener(stub).begin() for _ in range(count)]


async def ends(there: list[Listener]) -> Counter[grpc.StatusCode]:
    return Counter(await asyncio.gather(*(listener.end() for listener in there)))


async def answers(channel: grpc.aio.Channel) -> dict[str, Any]:
    """Of each kind one, without what a front adds about itself."""
    stub = Stub(channel)
    metadata = (("x-request-id", "the-same"),)
    refused = {
        name: await failure(stub.Synthesize(SynthesizeRequest(**fields), metadata=metadata))
        for name, fields in {
            "invalid": {"text": ""},
            "not found": {"text": "a", "config": {"voice": {"voice_id": "nobody"}}},
            "too long": {"text": "a" * 2_000_000},
            "of no value": {"text": "a", "config": {"language": "klingon"}},
        }.items()
    }
    call = stub.Synthesize(SynthesizeRequest(text="ab", config={"sampling": {"seed": 7}}), metadata=metadata)
    response = await call
    response.ClearField("stats")
    unknown = await failure(channel.unary_unary("/sonorant.tts.v1.TextToSpeechService/Sing")(b""))
    health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="readiness"))
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    watched = await watch.read()
    watch.cancel()
    reflection = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
    await reflection.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    await reflection.done_writing()
    services = [service.name for service in (await reflection.read()).list_services_response.service]
    initial = {
        key: value for key, value in await call.initial_metadata() if key.startswith("x-") and "envoy" not in key
    }
    trailing = {key for key, _ in await call.trailing_metadata() if "envoy" not in key}
    return {
        **refused,
        "response": response,
        "initial": initial,
        "trailing": trailing,
        "unknown": unknown,
        "health": (health, watched),
        "services": services,
    }
