"""What a checkpoint costs on a CPU: `python -m tests.measure.cpu_server --model qwen3-tts-12hz-0.6b-customvoice
--load-format dummy`. Starts a server, has it speak to one listener, and prints one line of JSON.

It has the seconds from exec to SERVING, the processor time that all processes took for it, in which phases each
process spent its seconds (by its log), the time to first audio and the real-time factor of each utterance, and while
the last one is spoken the memory of each process, in MiB: PSS, and how much of it is of files and of shared memory.
`--mappings N` adds the N largest mappings of each process. Other arguments are the server's. Start twice: the first
start keeps the converted weights, the second maps them.
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
from collections import defaultdict
from pathlib import Path
from typing import IO, Any

from sonorant.bench.grpc_speech import grpc_speaker
from sonorant.bench.loads import SpokenLoad, Target
from sonorant.bench.speakers import SAMPLE_RATE_HZ
from sonorant.bench.voices import Voices
from sonorant.client.listening.playback import PlaybackMeter, PlaybackReport

TEXT = "Nobody here has heard this voice before, and it should begin at once."
STARTED = re.compile(r"start of [\w-]+, .*? s: [^\"]*")
MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ .{4} \S+ \S+ \d+ *(.*)\n(?:.+:.*\n)*?Pss: +(\d+)", re.MULTILINE)
STOP_TIMEOUT_S = 20.0
MIB = 2**20


def tree(pid: int) -> list[int]:
    """The process and all below it."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(below for each in children for child in each.read_text().split() for below in tree(int(child)))]


def processor_s(pid: int) -> float:
    """Processor time of the process and all below it, also of those that have ended."""
    fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in tree(pid)]
    return sum(int(ticks) for each in fields for ticks in each[11:15]) / os.sysconf("SC_CLK_TCK")


def memory(pid: int, num_mappings: int) -> dict[str, Any]:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    parts = {name: int(kib) // 1024 for name, kib in re.findall(r"^(Pss(?:_\w+)?): +(\d+)", rollup, re.MULTILINE)}
    row: dict[str, Any] = {"name": Path(f"/proc/{pid}/comm").read_text().strip(), **parts}
    if num_mappings:
        mappings: dict[str, float] = defaultdict(float)
        for path, kib in MAPPING.findall(Path(f"/proc/{pid}/smaps").read_text()):
            mappings[path.rpartition("/")[2] or "anonymous"] += int(kib) / 1024
        largest = sorted(mappings.items(), key=lambda item: -item[1])[:num_mappings]
        row["mappings"] = {name: round(mib, 1) for name, mib in largest}
    return row


async def speak(address: str, args: argparse.Namespace, pid: int) -> tuple[list[PlaybackReport], list[dict[str, Any]]]:
    speech = SpokenLoad((TEXT,), 1, Voices("preset"), num_frames=args.frames)
    reports, processes = [], []
    async with grpc_speaker(Target("speak", address), speech) as speaker:
        for number in range(args.utterances):
            meter = PlaybackMeter(SAMPLE_RATE_HZ)
            speaking = asyncio.create_task(speaker.speak(TEXT, number, meter))
            if number == args.utterances - 1:
                await asyncio.sleep(args.frames * 0.08 * 0.5)  # it speaks: no server here is twice as fast as speech
                processes = [memory(each, args.mappings) for each in tree(pid)]
            await speaking
            reports.append(meter.report())
    return reports, processes


def start(arguments: list[str], log: IO[str]) -> tuple["subprocess.Popen[str]", str, float, float]:
    began_s = time.monotonic()
    command = [sys.executable, "-m", "sonorant.service", "--listen", "127.0.0.1:0", *arguments]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert server.stdout is not None
    for line in server.stdout:
        if (event := json.loads(line))["event"] == "serving":
            start_s = time.monotonic() - began_s
            return server, f"127.0.0.1:{event['port']}", start_s, processor_s(server.pid)
    raise SystemExit(f"the server ended with status {server.wait()}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.cpu_server", description=__doc__)
    parser.add_argument("--utterances", type=int, default=4)
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--mappings", type=int, default=0)
    args, arguments = parser.parse_known_args()
    with tempfile.TemporaryFile("w+") as log:
        server, address, start_s, worked_s = start(arguments, log)
        try:
            reports, processes = asyncio.run(speak(address, args, server.pid))
        finally:
            server.terminate()
            server.wait(STOP_TIMEOUT_S)
            log.seek(0)
            said = log.read()
    row = {
        "serving_s": round(start_s, 2),
        "processor_s": round(worked_s, 2),
        "starts": STARTED.findall(said),
        "ttfa_ms": [round(1000 * each.ttfa_s) for each in reports],
        "rtf": [round(each.rtf, 2) for each in reports],
        "pss_mib": round(sum(each["Pss"] for each in processes)),
        "pss_gb": round(sum(each["Pss"] for each in processes) * MIB / 1e9, 2),
        "load": Path("/proc/loadavg").read_text().split()[0],
        "processes": processes,
    }
    print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
