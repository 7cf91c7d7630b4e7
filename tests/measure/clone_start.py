"""How soon a cloned voice begins to speak beside a built-in one, as a table: `python -m tests.measure.clone_start`.

One server with a CustomVoice and a Base checkpoint in real worker processes, and voices kept in a folder. From the
text's departure at the client to the first audio there, in turns: a preset; a stored clone by its speaker embedding
alone; stored clones with transcripts, of recordings of several lengths; and last a recording that is sent along and new
each time. The parts are those of the latency budget that took longest, in the median.
"""

import argparse
import io
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import uvloop

from sonorant.engine import EngineConfig, EngineState, resolve_model, start_here
from sonorant.service.operations.latency import parts
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.voice_service_pb2 import CreateVoiceRequest
from tests.service.harness import Served, eventually, say, served
from tests.tiny_checkpoint import write_tiny_checkpoint

TEXT = "hello world the quick brown fox"
TRANSCRIPT = "the lazy dog speak slowly and with joy today "  # of five seconds
SAMPLING = {"ignore_eos": True, "max_frames": 8, "seed": 7}


def recording(seconds: float, seed: int) -> bytes:
    t = np.arange(round(seconds * 24_000)) / 24_000
    noise = 0.05 * np.random.default_rng(seed).standard_normal(len(t))
    file = io.BytesIO()
    soundfile.write(file, 0.3 * np.sin(1300 * t + 30 * np.sin(19 * t)) + noise, 24_000, format="WAV")
    return file.getvalue()


def clone(seconds: float, with_transcript: bool, seed: int = 0) -> dict[str, Any]:
    transcript = TRANSCRIPT * max(1, round(seconds / 5)) if with_transcript else ""
    return {"audio": recording(seconds, seed), "transcript": transcript}


async def start(server: Served, voice: dict[str, Any]) -> tuple[float, dict[str, float]]:
    """Milliseconds to the first audio, and of the parts of the way to it that the server tells."""
    call = server.stub.Speak()
    settings = speak_pb2.SpeakConfig(synthesis={"voice": voice, "sampling": SAMPLING})
    begin_s = time.perf_counter()
    await call.write(speak_pb2.SpeakRequest(config=settings))
    await call.write(say(TEXT))
    await call.done_writing()
    first_s, hops = 0.0, {}
    async for response in call:
        if not first_s and response.HasField("audio"):
            first_s = time.perf_counter()
            hops = dict(parts(response.audio.budget))
    return (first_s - begin_s) * 1000, hops


async def voices(server: Served, speaker: str, lengths_s: list[float]) -> dict[str, Iterator[dict[str, Any]]]:
    """What to choose the voice by, again and again, by the name of the row."""

    def always(voice_id: str) -> Iterator[dict[str, Any]]:
        while True:
            yield {"voice_id": voice_id}

    def new() -> Iterator[dict[str, Any]]:
        seed = 1
        while True:
            yield {"reference": clone(lengths_s[0], True, seed)}
            seed += 1

    async def keep(voice_id: str, reference: dict[str, Any]) -> Iterator[dict[str, Any]]:
        request = CreateVoiceRequest(voice_id=voice_id, reference=reference, consent="a synthetic tone")
        await server.voices.CreateVoice(request)
        return always(voice_id)

    found = {"preset": always(speaker), "clone, embedding": await keep("embedding", clone(lengths_s[0], False))}
    for seconds in lengths_s:
        found[f"clone, {seconds:g} s"] = await keep(f"clone-{seconds:g}s".replace(".", "-"), clone(seconds, True))
    return found | {f"sent along, {lengths_s[0]:g} s": new()}


async def measure(models: list[Path], args: argparse.Namespace) -> None:
    configs = [
        EngineConfig.of(
            model=model,
            load_format=args.load_format,
            talker_device=args.device,
            code2wav_device=args.device,
            code2wav_dtype=args.code2wav_dtype,
        )
        for model in models
    ]
    async with AsyncExitStack() as stack:
        engine = await start_here(configs)
        stack.push_async_callback(engine.close)
        await eventually(lambda: engine.state, EngineState.READY, 600)
        kept = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(served(engine, voices_dir=kept))
        rows = await voices(server, engine.info.speakers[0], args.seconds)
        starts: dict[str, list[tuple[float, dict[str, float]]]] = {name: [] for name in rows}
        for _ in range(args.rounds):
            for name, choices in rows.items():
                starts[name].append(await start(server, next(choices)))
    preset_ms = float(np.median([ms for ms, _ in starts["preset"]]))
    for name, found in starts.items():
        p50, p90 = np.percentile([ms for ms, _ in found], (50, 90))
        hops = {hop: float(np.median([hops[hop] for _, hops in found])) for hop in found[0][1]}
        longest = sorted(hops, key=hops.__getitem__, reverse=True)[:4]
        told = ", ".join(f"{hop} {hops[hop]:.1f}" for hop in longest)
        print(f"{name:<20} {p50:>8.1f} {p90:>8.1f} {p50 / preset_ms:>7.2f}   {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs=2, metavar="DIR|PRESET", help="CustomVoice and Base; default: tiny ones")
    parser.add_argument("--load-format", choices=("safetensors", "dummy"), default="safetensors")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--code2wav-dtype", choices=("float32", "tf32", "float16"), default="float32")
    parser.add_argument("--seconds", type=float, nargs="+", default=[3.0, 10.0], metavar="S", help="of the recordings")
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    print("voice                  p50 ms   p90 ms   ratio   parts, ms")
    with tempfile.TemporaryDirectory() as folder:
        if args.models:
            models = [resolve_model(name) for name in args.models]
        else:
            models = [write_tiny_checkpoint(Path(folder) / task, task) for task in ("custom_voice", "base")]
        uvloop.run(measure(models, args))


if __name__ == "__main__":
    main()
