"""Shows that memory is bounded however many recordings come: starts a server, and clones a new voice in each of many
calls.

    python -m tests.measure.many_recordings [--number 10000] [--model builtin_base] [SETTING OF THE SERVER ...]

Prints the memory of all processes of the server, by name, as it was at the beginning and after each part of the calls.
Shared memory counts once (PSS).
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from sonorant.bench.grpc_speech import GrpcSpeaker, grpc_speaker
from sonorant.bench.loads import SpokenLoad, Target
from sonorant.bench.speakers import SAMPLE_RATE_HZ
from sonorant.bench.voices import Voices
from sonorant.client.listening.playback import PlaybackMeter
from tests.measure.clone_rows import HERE, running, until_serving

TEXT = "Yes."
START_S = 120.0
PORT = 50991


def descendants(pid: int) -> list[int]:
    found = [pid]
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += descendants(child)
    return found


def kb_by_name(pid: int) -> Counter[str]:
    kb = Counter[str]()
    for each in descendants(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            name = Path(f"/proc/{each}/comm").read_text().strip()
            kb[name] += int(Path(f"/proc/{each}/smaps_rollup").read_text().partition("\nPss:")[2].split()[0])
    return kb


async def clone(speaker: GrpcSpeaker, numbers: range) -> None:
    for number in numbers:
        await speaker.speak(TEXT, number, PlaybackMeter(SAMPLE_RATE_HZ))


async def clone_all(server: "subprocess.Popen[bytes]", args: argparse.Namespace) -> None:
    speech = SpokenLoad((TEXT,), 1, Voices("clone", recording_s=args.recording_s, salt=time.time_ns()), num_frames=1)
    began_s, before, part = time.monotonic(), Counter[str](), args.number // args.parts
    async with grpc_speaker(Target("speak", f"127.0.0.1:{PORT}"), speech) as speaker:
        for first in range(0, args.number, part):
            after = min(first + part, args.number)
            async with asyncio.TaskGroup() as tasks:
                for caller in range(args.callers):
                    tasks.create_task(clone(speaker, range(first + caller, after, args.callers)))
            kb = kb_by_name(server.pid)
            grown = ", ".join(f"{name} {kb[name] - before[name]:+}" for name in sorted(kb) if kb[name] != before[name])
            took_s = time.monotonic() - began_s
            print(f"{after} recordings, {took_s:.0f} s: {kb.total() / 1024:.1f} MiB; kB: {grown}", flush=True)
            before = kb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=10_000)
    parser.add_argument("--parts", type=int, default=20)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--recording-s", type=float, default=1.0)
    parser.add_argument("--model", default="builtin_base")
    args, settings = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        command = ["sonorant.service", "--listen", f"127.0.0.1:{PORT}", "--model", args.model, *settings]
        log = Path(folder) / "log"
        with running(command, HERE, log) as server:
            if not until_serving(server, f"127.0.0.1:{PORT}", time.monotonic() + START_S):
                sys.exit(f"the server was not SERVING in time\n{log.read_text()[-2000:]}")
            try:
                asyncio.run(clone_all(server, args))
            except BaseException:
                print(f"not all were cloned; the server's log ends with\n{log.read_text()[-2000:]}", flush=True)
                raise


if __name__ == "__main__":
    main()
