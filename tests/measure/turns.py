"""Two versions in turns on one machine: `python -m tests.measure.turns OLD . --rounds 3 --server "--standby 0 ..."`.

Each of two checkouts (folders) serves in turns, the second one first in every other round, so that a machine which
warms up or gets busy does so for both. This checkout's `sonorant bench` calls them. `--bench` may come several
times: each is one run of it on the same server. Rows are printed as they come; at the end, for each load, the medians
over the rounds, and by how much the second version differs from the first.

A checkout needs no environment of its own: this one's is used, with the checkout's packages before its own. Its C
functions must have been built there (`make setup`, or `python engine/build_cpu.py`), or its CPU speaks by torch.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

SOURCE_ROOTS = ("proto", "clients", "service", "engine")
STOP_TIMEOUT_S = 30.0
FIGURES = ("ttfa_ms_p50", "ttfa_ms_p95", "audio_s_per_s", "num_gaps")


@contextmanager
def serving(checkout: Path, arguments: list[str]) -> Iterator[str]:
    """A server of this version; its address."""
    paths = [*(str(checkout / root) for root in SOURCE_ROOTS), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "sonorant.service", "--listen", "127.0.0.1:0", *arguments]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert server.stdout is not None
        try:
            events = (json.loads(line) for line in server.stdout)
            address = next((f"127.0.0.1:{event['port']}" for event in events if event["event"] == "serving"), None)
            if address is None:
                log.seek(0)
                raise SystemExit(f"the server of {checkout} ended with {server.wait()}:\n{log.read()[-2000:]}")
            yield address
        finally:
            server.terminate()
            server.wait(STOP_TIMEOUT_S)


def bench(address: str, arguments: str, limit_s: float) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "sonorant.bench", "--server", address, *shlex.split(arguments)]
        subprocess.run([*command, "--json", str(result)], check=True, stdout=subprocess.DEVNULL, timeout=limit_s)
        rows: list[dict[str, Any]] = json.loads(result.read_text())["summary"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.turns", description=__doc__)
    parser.add_argument("versions", type=Path, nargs=2, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", type=shlex.split, default=[], help="settings of both servers, in one string")
    parser.add_argument("--bench", action="append", help="arguments of `sonorant bench`, in one string")
    parser.add_argument("--limit-s", type=float, default=120, help="give up after a run of this length")
    args = parser.parse_args()
    versions = [version.resolve() for version in args.versions]
    measured: dict[tuple[str, Path], list[dict[str, float]]] = {}
    for number in range(args.rounds):
        for version in versions[:: -1 if number % 2 else 1]:
            with serving(version, args.server) as address:
                for arguments in args.bench or ["--closed 1 4"]:
                    for row in bench(address, arguments, args.limit_s):
                        figures = {name: row[name] for name in FIGURES}
                        measured.setdefault((row["load"], version), []).append(figures)
                        print(number, version.name, row["load"], figures, flush=True)
    for load in dict.fromkeys(load for load, _ in measured):
        for name in FIGURES:
            old, new = (median(row[name] for row in measured[load, version]) for version in versions)
            print(f"{load}, {name}: {old:.4g} -> {new:.4g}" + (f" ({new / old - 1:+.1%})" if old else ""))


if __name__ == "__main__":
    main()
