"""What a live stream notices of recordings that are uploaded meanwhile: `python -m tests.measure.upload_cost`.

One server with the built-in voice and a Base checkpoint in real worker processes. The former speaks one utterance after
the other, in turns with nothing beside it and with a new recording in the encoder of the latter all the time: until the
first audio, and until the last.
"""

import argparse
import asyncio
import itertools
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import uvloop

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig, EngineState, resolve_model, start_here
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.voice_service_pb2 import CreateVoiceRequest
from tests.measure.clone_start import TEXT, clone
from tests.service.harness import Served, eventually, say, served
from tests.tiny_checkpoint import write_tiny_checkpoint


async def speak(server: Served, num_frames: int) -> tuple[float, float]:
    """Milliseconds to the first and to the last audio."""
    call = server.stub.Speak()
    sampling = {"ignore_eos": True, "max_frames": num_frames, "seed": 7}
    synthesis = {"voice": {"voice_id": "linden"}, "sampling": sampling}
    begin_s = time.perf_counter()
    await call.write(speak_pb2.SpeakRequest(config=speak_pb2.SpeakConfig(synthesis=synthesis)))
    await call.write(say(TEXT))
    await call.done_writing()
    times = [time.perf_counter() - begin_s async for response in call if response.HasField("audio")]
    return times[0] * 1000, times[-1] * 1000


async def upload(server: Served, voice_id: str, seed: int, seconds: float) -> None:
    request = CreateVoiceRequest(
        voice_id=voice_id, reference=clone(seconds, True, seed), consent="a synthetic tone", ttl_seconds=600
    )
    await server.voices.CreateVoice(request)


async def upload_for_ever(server: Served, seconds: float, seeds: "itertools.count[int]") -> None:
    for seed in seeds:
        await upload(server, f"upload-{seed}", seed, seconds)


async def measure(model: Path, args: argparse.Namespace) -> None:
    base = EngineConfig.of(model, load_format=args.load_format, num_slots=1, max_context=512)
    rows: dict[str, list[tuple[float, float]]] = {"nothing": [], "uploads": []}
    seeds = itertools.count(1)
    async with AsyncExitStack() as stack:
        engine = await start_here([EngineConfig(BUILTIN_VOICE_DIR), base])
        stack.push_async_callback(engine.close)
        await eventually(lambda: engine.state, EngineState.READY, 600)
        kept = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(served(engine, voices_dir=kept))
        await upload(server, "first", 0, args.seconds)  # the encoder loads
        for _ in range(args.rounds):
            rows["nothing"] += [await speak(server, args.frames) for _ in range(3)]
            uploading = asyncio.create_task(upload_for_ever(server, args.seconds, seeds))
            await asyncio.sleep(0.3)  # the encoder is at work
            rows["uploads"] += [await speak(server, args.frames) for _ in range(3)]
            uploading.cancel()
            await asyncio.wait([uploading])
            await asyncio.sleep(args.pause_s)  # the encoder ends what it has begun
    print(f"{'beside':<10} {'first p50':>10} {'p90':>8} {'last p50':>10} {'p90':>8}  ms")
    for beside, found in rows.items():
        first, last = np.percentile(np.array(found), (50, 90), axis=0).T
        print(f"{beside:<10} {first[0]:>10.1f} {first[1]:>8.1f} {last[0]:>10.1f} {last[1]:>8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="DIR|PRESET", help="a Base checkpoint; default: a tiny one")
    parser.add_argument("--load-format", choices=("safetensors", "dummy"), default="safetensors")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of the recordings")
    parser.add_argument("--frames", type=int, default=24, help="of the utterances")
    parser.add_argument("--pause-s", type=float, default=1.0, metavar="S", help="after uploads")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = resolve_model(args.model) if args.model else write_tiny_checkpoint(Path(folder) / "base", "base")
        uvloop.run(measure(model, args))


if __name__ == "__main__":
    main()
