"""Real-time listeners on the service alone: `python -m tests.measure.listeners [--amount 1000] [--seconds 20]`.

The paced load of `sonorant bench`, with its own client processes, on a server in this process over an engine that has
its audio at once. Prints the benchmark's table, how long the listeners waited for their sessions to open, and of the
service process the cores used beside the engine's stand-in, the longest stall of its event loop (on a busy machine also
the machine's) and the longest garbage collection.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from tests.measure.front_end_cost import watched
from tests.service.fake_engine import SPEAKERS, FakeEngine
from tests.service.harness import served

NUM_FRAMES = 69


async def measure(amount: int, seconds: float, results: Path) -> None:
    """Prints what the server did; the clients' results go into a file."""
    engine = FakeEngine(max_streams=2 * amount)  # the next utterance is opened while one is heard
    async with served(engine, max_sessions=2 * amount) as server, watched() as pauses:
        before_s = time.process_time() - engine.busy_s
        begun_s = time.monotonic()
        bench = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sonorant.bench", "--server", server.address, "--voice", SPEAKERS[0],
            "--paced", str(amount), "--paced-seconds", str(seconds), "--frames", str(NUM_FRAMES),
            "--json", str(results),
        )  # fmt: skip
        await bench.wait()
        cores = (time.process_time() - engine.busy_s - before_s) / (time.monotonic() - begun_s)
    print(
        f"service: {cores:.2f} cores, longest stall {pauses.stall_s * 1000:.0f} ms, "
        f"longest collection {pauses.collection_s * 1000:.1f} ms of CPU time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--amount", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        results = Path(directory) / "bench.json"
        uvloop.run(measure(args.amount, args.seconds, results))
        for row in json.loads(results.read_text())["runs"]:
            opening = ", ".join(f"p{percent} {row[f'opening_ms_p{percent}']:g}" for percent in (50, 95, 99))
            gaps = f"{row['underruns']:.1%}, up to {row['gap_ms_max']:g} ms"
            print(f"opening, ms: {opening}; sessions with a gap: {gaps}")


if __name__ == "__main__":
    main()
