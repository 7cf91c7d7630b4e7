"""What a hostile client does: `python -m tests.measure.attacks ADDRESS SECONDS [ATTACK...]`; for `hostile`."""

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc
import uvloop

from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.explain_pb2 import ExplainRequest
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest, SynthesizeStreamRequest
from tests.fuzz.http2 import SHAPES
from tests.fuzz.messages import METHODS, random_message
from tests.measure.forged_resumes import FORGED_RESUMES
from tests.measure.small_attacks import SMALL_ATTACKS, channel
from tests.service.harness import Stub, cancel, say

CHINESE = "你好。" * 1365
EXTREME = {"temperature": 1e-3, "repetition_penalty": 100.0, "top_k": 1}
PATIENCE_S = 10.0

Attack = Callable[[str, random.Random], Awaitable[None]]


async def raw(address: str, rng: random.Random) -> None:
    """A connection that makes no sense, and is left open for a while."""
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(rng.choice(SHAPES)(address, rng))
        await asyncio.sleep(rng.random())
    finally:
        writer.transport.abort()


async def hoard(address: str, rng: random.Random) -> None:
    """Sessions with a word each, that nobody ends or reads."""
    async with channel(address) as here:
        calls = [Stub(here).Speak() for _ in range(50)]
        for call in calls:
            await call.write(speak_pb2.SpeakRequest(config={}))
            await call.write(say("word"))
        await asyncio.sleep(2)
        for call in calls:
            call.cancel()


async def queue_up(address: str, rng: random.Random) -> None:
    """Hundreds of utterances that take all places and wait for more, of both priorities, and that nobody reads."""
    async with channel(address) as here:
        calls = [
            Stub(here).SynthesizeStream(
                SynthesizeStreamRequest(
                    text=CHINESE[:400], scheduling={"max_wait_ms": 600_000, "priority": rng.randrange(3)}
                )
            )
            for _ in range(300)
        ]
        await asyncio.sleep(3)
        for call in calls:
            call.cancel()


async def long_texts(address: str, rng: random.Random) -> None:
    async with channel(address) as here:
        call = Stub(here).Speak()
        await call.write(speak_pb2.SpeakRequest(config={"text_policy": {"mode": "COMMIT_MODE_SENTENCE"}}))
        for number in range(5):
            await call.write(say(CHINESE[:4096], f"u{number}"))
            await call.write(cancel("*"))
        call.cancel()


async def huge_messages(address: str, rng: random.Random) -> None:
    async with channel(address) as here:
        text = rng.choice(("a" * 7_000_000, "你" * 2_300_000))
        packed = rng.choice((grpc.Compression.Gzip, grpc.Compression.NoCompression))
        await Stub(here).Synthesize(SynthesizeRequest(text=text), compression=packed)


async def small_parts(address: str, rng: random.Random) -> None:
    """Hundreds of thousands of them in one message, which take long to parse, and are refused in any case."""
    async with channel(address) as here:
        config: dict[str, Any] = {"pronunciations": {f"{number:x}": "" for number in range(600_000)}}
        await Stub(here).Synthesize(SynthesizeRequest(text="Hello.", config=config))


async def explain(address: str, rng: random.Random) -> None:
    async with channel(address) as here:
        requests = [ExplainRequest(text="word " * 800) for _ in range(20)]
        await asyncio.gather(*(Stub(here).Explain(request) for request in requests), return_exceptions=True)


async def extremes(address: str, rng: random.Random) -> None:
    async with channel(address) as here:
        config: dict[str, Any] = {"sampling": {**EXTREME, "max_frames": 20}}
        await Stub(here).Synthesize(SynthesizeRequest(text="Hello.", config=config))


async def nonsense(address: str, rng: random.Random) -> None:
    async with channel(address) as here:
        for _ in range(20):
            method = rng.choice(METHODS)
            call = here.stream_stream(method.path)(iter([random_message(method.kind, rng).SerializeToString()]))
            with suppress(grpc.aio.AioRpcError):
                await call.read()
            call.cancel()


ATTACKS: tuple[Attack, ...] = (
    raw,
    raw,
    raw,
    hoard,
    queue_up,
    long_texts,
    huge_messages,
    small_parts,
    explain,
    extremes,
    nonsense,
    *SMALL_ATTACKS,
    *FORGED_RESUMES,
)


async def attack(address: str, seconds: float, seed: int, names: Sequence[str]) -> Counter[str]:
    """Those with these names, or all of them, at the same time."""
    until_s, done = time.monotonic() + seconds, Counter[str]()
    chosen = [act for act in ATTACKS if not names or act.__name__ in names]

    async def keep_on(number: int, act: Attack) -> None:
        rng = random.Random(f"{seed} {number}")
        while time.monotonic() < until_s:
            with suppress(grpc.aio.AioRpcError, OSError, TimeoutError, asyncio.InvalidStateError):
                async with asyncio.timeout(PATIENCE_S):
                    await act(address, rng)
            done[act.__name__] += 1

    await asyncio.gather(*(keep_on(number, act) for number, act in enumerate(chosen)))
    return done


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.measure.attacks", description=__doc__)
    parser.add_argument("address", metavar="ADDRESS")
    parser.add_argument("seconds", metavar="SECONDS", type=float)
    known = ", ".join(sorted({each.__name__ for each in ATTACKS}))
    parser.add_argument("names", metavar="ATTACK", nargs="*", help=f"of {known}; default: all")
    args = parser.parse_args()
    print("ready", flush=True)
    counts = uvloop.run(attack(args.address, args.seconds, seed=1, names=args.names))
    done = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    print(f"{done}; {time.process_time():.1f} s of a core")
