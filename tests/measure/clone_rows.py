"""Measures how soon cloned voices speak: starts a server, and puts the loads of one row after another on it.

    python tests/measure/clone_rows.py --limit-s 200 [--set clones] [--tree FOLDER] [SETTING OF THE SERVER ...]

Sets: `clones`; `doors`, clones through the gateway, by OpenAI's API and by WebSocket; `included`, the included
checkpoints; `design`, described voices and presets in turns; `beside`, listeners of presets in all slots of one
checkpoint beside new recordings on the other; `fair`, one caller's long recordings beside another's presets and clones.
`--tls` has clones call with TLS and a key; the folder holds ca.pem, cert.pem (for localhost) and key.pem.
`--tree` starts the server of another checkout; `sonorant bench` of this one measures it. Each row is printed as it is
measured, with the mean of each part of the latency budget; what does not fit into the limit is left out, and said.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sonorant.bench.grpc_speech import grpc_speaker
from sonorant.bench.loads import SpokenLoad, Target
from sonorant.bench.speakers import SAMPLE_RATE_HZ
from sonorant.bench.voices import Voices
from sonorant.client.client import SpeechClient
from sonorant.client.errors import SpeechError
from sonorant.client.listening.playback import PlaybackMeter
from sonorant.service.access.api_keys import new_key

HERE = Path(__file__).resolve().parents[2]
ROOTS = ("proto", "clients", "service", "engine")
FRAMES, SECONDS, WARM_UP_S = 69, 4.0, 1.5
TEXT = "Nobody here has heard this voice before, and it should begin at once."
GATEWAY_START_S = 6.0
ROW_S = 15.0  # more than a row takes, with its processes; one that refuses all may take as long
BASE, CUSTOM, DESIGN = (f"qwen3-tts-12hz-1.7b-{task}" for task in ("base", "customvoice", "voicedesign"))
BODY = json.dumps({"max_new_tokens": FRAMES}).replace("{", "{{").replace("}", "}}")  # it is formatted once
Load = tuple[str, ...]


def cloned(*load: str, recordings: int = 0, seconds: int = 5) -> Load:
    return "--task", "clone", "--recordings", str(recordings), "--recording-s", str(seconds), *load


def designed(*load: str) -> Load:
    return "--task", "design", *load


@dataclass(frozen=True, slots=True)
class Set:
    models: tuple[str, ...]
    rows: dict[str, tuple[Load, ...]]  # the loads of a row come at the same time
    needs_keys: bool = False
    has_gateway: bool = False


def with_key(name: str, load: Load) -> Load:
    """`name`: of the file with the key, in the folder of the run."""
    return *load, "--keys", f"{{folder}}/{name}.key"


def through(door: str, load: Load) -> Load:
    """Have a load call the gateway."""
    return *load, "--openai", "{gateway}/v1", "--openai-by", door, "--openai-body", BODY


PRESETS, CLONES = ("--open", "10"), cloned("--open", "5")
LONG = with_key("busy", cloned("--closed", "32", seconds=30))
SETS = {
    "clones": Set(
        (BASE,),
        {
            "closed 1, never seen, 5 s": (cloned("--closed", "1"),),
            "closed 1, seen before, sent along": (cloned("--closed", "1", recordings=1),),
            "closed 1, kept under an id": (("--voice", "kept-voice", "--closed", "1"),),
            "open 50/s, each never seen": (cloned("--open", "50"),),
            "open 20/s, each never seen": (cloned("--open", "20"),),
            "closed 16, 64 in rotation": (cloned("--closed", "16", recordings=64),),
            "closed 64, 64 in rotation": (cloned("--closed", "64", recordings=64),),
            "closed 1, never seen, 15 s": (cloned("--closed", "1", seconds=15),),
            "closed 128, 64 in rotation": (cloned("--closed", "128", recordings=64),),
        },
    ),
    "doors": Set(
        (BASE,),
        {
            f"{door}, {name}": (through(door, load),)
            for door in ("bytes", "websocket")
            for name, load in {
                "closed 1, never seen, 5 s": cloned("--closed", "1"),
                "closed 1, seen before": cloned("--closed", "1", recordings=1),
                "closed 16, 64 in rotation": cloned("--closed", "16", recordings=64),
                "closed 64, 64 in rotation": cloned("--closed", "64", recordings=64),
            }.items()
        },
        has_gateway=True,
    ),
    "included": Set(
        ("builtin_voice", "builtin_base"),
        {
            "closed 1, presets": (("--closed", "1"),),
            "closed 1, never seen, 5 s": (cloned("--closed", "1"),),
            "closed 1, seen before, sent along": (cloned("--closed", "1", recordings=1),),
            "2 listeners alone": (("--paced", "2"),),
            "2 listeners beside 12 new at once": (("--paced", "2"), cloned("--closed", "12")),
        },
    ),
    "design": Set(
        (CUSTOM, DESIGN),
        {
            "closed 1, presets": (("--closed", "1"),),
            "closed 1, described": (designed("--closed", "1"),),
            "closed 64, presets": (("--closed", "64"),),
            "closed 64, described": (designed("--closed", "64"),),
            "closed 1, presets again": (("--closed", "1"),),
            "closed 1, described again": (designed("--closed", "1"),),
        },
    ),
    "beside": Set(
        (CUSTOM, BASE),
        {
            "listeners alone": (("--paced", "{listeners}"),),
            "listeners beside 20/s never seen": (("--paced", "{listeners}"), cloned("--open", "20")),
        },
    ),
    "fair": Set(
        (CUSTOM, BASE),
        {
            "presets and clones of one caller alone": (with_key("calm", PRESETS), with_key("calm", CLONES)),
            "beside 32 recordings of 30 s of another": (with_key("calm", PRESETS), with_key("calm", CLONES), LONG),
        },
        needs_keys=True,
    ),
}


def environment(tree: Path) -> dict[str, str]:
    paths = os.pathsep.join(str(tree / root) for root in ROOTS)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (paths, os.environ.get("PYTHONPATH"))))}


async def first_clone(address: str) -> float:
    """Return how long the first sample of the first clone took, in ms."""
    speech = SpokenLoad((TEXT,), 1, Voices("clone", recording_s=5, salt=1), num_frames=FRAMES)
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


async def num_listeners(address: str, num_models: int, most: int) -> int:
    """Return how many streams one of several alike checkpoints admits, or `most`."""
    async with SpeechClient(address) as client:
        return min(most, (await client.capabilities()).max_streams // num_models)


def make_keys(folder: Path) -> Path:
    tables = []
    for name in ("calm", "busy"):
        key, table = new_key(name)
        (folder / f"{name}.key").write_text(key)
        tables.append(f"{table}\nmax_sessions = 1000\n")
    path = folder / "keys.toml"
    path.write_text("\n".join(tables))
    path.chmod(0o600)
    return path


def budget_sums(port: int) -> dict[str, tuple[float, float]]:
    """Return the sum in s, and the number, of each part of the latency budget."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        text = page.read().decode()
    found = re.findall(r'^tts_budget_seconds_(sum|count){part="(\w+)"} (\S+)', text, re.MULTILINE)
    sums = {part: float(value) for kind, part, value in found if kind == "sum"}
    return {part: (sums[part], float(value)) for kind, part, value in found if kind == "count"}


def arguments() -> tuple[argparse.Namespace, list[str]]:
    """Return ours, and those of the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=200.0)
    parser.add_argument("--set", choices=SETS, default="clones")
    parser.add_argument("--tree", type=Path, default=HERE)
    parser.add_argument("--port", type=int, default=50951)
    parser.add_argument("--tls", type=Path, metavar="FOLDER")
    parser.add_argument("--listeners", type=int, default=10_000, help="at most, instead of one in each slot")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    args, settings = parser.parse_known_args()
    chosen = SETS[args.set]
    if not settings:
        settings = [word for model in chosen.models for word in ("--model", model)]
        settings += [] if args.set == "included" else ["--load-format", "dummy"]
    return args, settings


def access_settings(folder: Path, tls: Path | None, *, needs_keys: bool) -> list[str]:
    """Return the settings of the server. With TLS, have clients started from here use it, with a key."""
    settings = ["--api-keys", str(make_keys(folder))] if needs_keys or tls else []
    if tls:
        settings += ["--tls-certificate", str(tls / "cert.pem"), "--tls-key", str(tls / "key.pem")]
        os.environ["SONORANT_CLIENT_CA"] = str(tls / "ca.pem")
        os.environ["SONORANT_CLIENT_API_KEY"] = (folder / "calm.key").read_text()
    return settings


@contextmanager
def running(command: list[str], tree: Path, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], env=environment(tree), stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()


def main() -> None:
    args, settings = arguments()
    ends_s = time.monotonic() + args.limit_s
    chosen = SETS[args.set]
    address, gateway = f"{'localhost' if args.tls else '127.0.0.1'}:{args.port}", f"127.0.0.1:{args.port + 2}"
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        command = ["sonorant.service", "--listen", f"127.0.0.1:{args.port}", "--voices-dir", name]
        command += ["--metrics-listen", f"127.0.0.1:{args.port + 1}", *settings]
        command += access_settings(folder, args.tls, needs_keys=chosen.needs_keys)
        begun_s = time.monotonic()
        server = stack.enter_context(running(command, args.tree, folder / "log"))
        if not until_serving(server, address, ends_s):
            raise SystemExit(f"the server was not SERVING in time\n{(folder / 'log').read_text()[-2000:]}")
        print(f"{args.tree.name}: SERVING after {time.monotonic() - begun_s:.1f} s", flush=True)
        filled = {"folder": name, "gateway": f"http://{gateway}"}
        if args.set == "clones":
            print(f"first clone after SERVING: {asyncio.run(first_clone(address)):.1f} ms", flush=True)
            asyncio.run(keep_voice(address))
        if args.set == "beside":
            num = asyncio.run(num_listeners(address, len(chosen.models), args.listeners))
            filled["listeners"] = str(num)
            print(f"{num} listeners", flush=True)
        if chosen.has_gateway:
            front = ["sonorant.gateway", "--listen", gateway, "--server", address]
            stack.enter_context(running(front, args.tree, folder / "gateway.log"))
            time.sleep(GATEWAY_START_S)
        for row, loads in chosen.rows.items():
            if args.only in row:
                measure(row, address, [[word.format(**filled) for word in load] for load in loads], args.port, ends_s)


def measure(name: str, address: str, loads: list[list[str]], port: int, ends_s: float) -> None:
    left_s = ends_s - time.monotonic()
    if left_s < ROW_S:
        print(f"{name}: left out, the time is over", flush=True)
        return
    bench = [sys.executable, "-m", "sonorant.bench", "--frames", str(FRAMES)]
    bench += ["--seconds", str(SECONDS), "--warm-up-s", str(WARM_UP_S), "--timeout-s", "10"]
    before = budget_sums(port + 1)
    runs = [
        subprocess.Popen(
            [*bench, *([] if "--openai" in load else ["--server", address]), *load],
            env=environment(HERE),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for load in loads
    ]
    print(name, flush=True)
    for run in runs:
        try:
            stdout, stderr = run.communicate(timeout=max(1.0, ends_s - time.monotonic()))
            print(stdout.rstrip() or stderr[-1000:], flush=True)
        except subprocess.TimeoutExpired:
            run.kill()
            print("not over within the time", flush=True)
    after = budget_sums(port + 1)
    parts = []
    for part, (sum_s, num) in after.items():
        sum_before_s, num_before = before.get(part, (0.0, 0.0))
        if num > num_before and (mean_ms := 1000 * (sum_s - sum_before_s) / (num - num_before)) >= 0.05:
            parts.append(f"{part} {mean_ms:.1f}")
    print(f"mean ms of the budget: {', '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
