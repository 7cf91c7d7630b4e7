"""Measures how soon cloned voices speak: starts a server, and puts the loads of one row after another on it.

    python tests/measure/clone_rows.py --limit-s 200 [--tree FOLDER] [SETTING OF THE SERVER ...]

`--tree` starts the server of another checkout; `sonorant bench` of this one measures it. Each row is printed as it is
measured; what does not fit into the limit is left out, and said.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sonorant.bench.grpc_speech import grpc_speaker
from sonorant.bench.loads import Speech, Target
from sonorant.bench.speakers import SAMPLE_RATE_HZ
from sonorant.bench.voices import Voices
from sonorant.client.client import SpeechClient
from sonorant.client.errors import SpeechError
from sonorant.client.listening.playback import PlaybackMeter

HERE = Path(__file__).resolve().parents[2]
ROOTS = ("proto", "clients", "service", "engine")
SHAPE = ("--model", "qwen3-tts-12hz-1.7b-base", "--load-format", "dummy")
FRAMES, SECONDS, WARM_UP_S = 69, 4.0, 1.5
TEXT = "Nobody here has heard this voice before, and it should begin at once."
ROW_S = 15.0  # more than a row takes, with its processes; one that refuses all may take as long
ROTATION = ("--task", "clone", "--recordings", "64", "--recording-s", "5")
ONCE = ("--task", "clone", "--recording-s", "5")
ROWS: dict[str, tuple[str, ...]] = {
    "closed 1, never seen, 5 s": (*ONCE, "--closed", "1"),
    "closed 1, seen before, sent along": (
        "--task",
        "clone",
        "--recordings",
        "1",
        "--recording-s",
        "5",
        "--closed",
        "1",
    ),
    "closed 1, kept under an id": ("--voice", "kept-voice", "--closed", "1"),
    "open 20/s, each never seen": (*ONCE, "--open", "20"),
    "closed 16, 64 in rotation": (*ROTATION, "--closed", "16"),
    "closed 64, 64 in rotation": (*ROTATION, "--closed", "64"),
    "open 50/s, each never seen": (*ONCE, "--open", "50"),
    "closed 1, never seen, 15 s": ("--task", "clone", "--recording-s", "15", "--closed", "1"),
    "closed 128, 64 in rotation": (*ROTATION, "--closed", "128"),
}


def environment(tree: Path) -> dict[str, str]:
    paths = os.pathsep.join(str(tree / root) for root in ROOTS)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (paths, os.environ.get("PYTHONPATH"))))}


async def first_clone(address: str) -> float:
    """Return how long the first sample of the first clone took, in ms."""
    speech = Speech((TEXT,), 1, Voices("clone", recording_s=5, salt=1), num_frames=FRAMES)
    speech.voices.warm_up()
    meter = PlaybackMeter(SAMPLE_RATE_HZ)
    async with grpc_speaker(Target("speak", address), speech) as speaker:
        begun_s = time.monotonic()
        await speaker.speak(TEXT, 1, meter)
    return 1000 * (meter.text_sent_s - begun_s + meter.report().ttfa_s)


async def keep_voice(address: str) -> None:
    recording = Voices("clone", recording_s=5, salt=2).recording(0)
    async with SpeechClient(address) as client:
        await client.create_voice(
            "kept-voice", reference=recording.audio, transcript=recording.transcript, consent="made by a benchmark"
        )


def until_serving(server: "subprocess.Popen[bytes]", address: str, ends_s: float) -> bool:
    async def serves() -> bool:
        async with SpeechClient(address) as client:
            try:
                return await client.health() == "SERVING"
            except SpeechError:
                return False

    while not asyncio.run(serves()):
        if server.poll() is not None or time.monotonic() > ends_s:
            return False
        time.sleep(0.2)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=200.0)
    parser.add_argument("--tree", type=Path, default=HERE)
    parser.add_argument("--port", type=int, default=50951)
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    args, settings = parser.parse_known_args()
    ends_s = time.monotonic() + args.limit_s
    address = f"127.0.0.1:{args.port}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "sonorant.service", "--listen", address, "--voices-dir", folder]
        log = Path(folder) / "log"
        with log.open("w") as file:
            server = subprocess.Popen(
                [*command, *(settings or SHAPE)], env=environment(args.tree), stdout=file, stderr=file
            )
        try:
            begun_s = time.monotonic()
            if not until_serving(server, address, ends_s):
                raise SystemExit(f"the server was not SERVING in time\n{log.read_text()[-2000:]}")
            print(f"{args.tree.name}: SERVING after {time.monotonic() - begun_s:.1f} s", flush=True)
            print(f"first clone after SERVING: {asyncio.run(first_clone(address)):.1f} ms", flush=True)
            asyncio.run(keep_voice(address))
            for name, load in ROWS.items():
                if args.only in name:
                    measure(name, load, address, ends_s)
        finally:
            server.terminate()
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                server.kill()


def measure(name: str, load: tuple[str, ...], address: str, ends_s: float) -> None:
    left_s = ends_s - time.monotonic()
    if left_s < ROW_S:
        print(f"{name}: left out, the time is over", flush=True)
        return
    bench = [sys.executable, "-m", "sonorant.bench", "--server", address, "--frames", str(FRAMES), *load]
    bench += ["--seconds", str(SECONDS), "--warm-up-s", str(WARM_UP_S), "--timeout-s", "10"]
    try:
        done = subprocess.run(bench, env=environment(HERE), capture_output=True, text=True, timeout=left_s)
        print(f"{name}\n{done.stdout.rstrip()}", flush=True)
        if not done.stdout:
            print(done.stderr[-1000:], flush=True)
    except subprocess.TimeoutExpired:
        print(f"{name}: not over within the time", flush=True)


if __name__ == "__main__":
    main()
