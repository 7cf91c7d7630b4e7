"""Servers are killed and started again under live sessions: `python -m tests.measure.restarts`.

In each of fifty rounds four sessions have three turns each, half of them cut off, and at a random moment one server and
all its workers are killed (`kill -9`) and started again. `tests/e2e/restart_rounds.py` says what must hold.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sonorant.client import Retry, SpeechClient
from tests.e2e.restart_rounds import NUM_SESSIONS, TURNS, RestartedServer, restart_round, undisturbed


@contextmanager
def running(count: int) -> Iterator[list[RestartedServer]]:
    with tempfile.TemporaryDirectory() as folder:
        servers: list[RestartedServer] = []
        try:
            for number in range(count):
                (log := Path(folder) / str(number)).mkdir()
                servers.append(RestartedServer(log))
            yield servers
        finally:
            for server in servers:
                server.stop()


async def run(args: argparse.Namespace) -> None:
    with running(args.servers) as servers:
        # gRPC goes through these in their order, and from one that is gone to the next.
        target = f"ipv4:{','.join(server.address for server in servers)}"
        async with SpeechClient(target, retry=Retry(for_s=args.reconnect_s)) as client:
            known = await undisturbed(client)
            failed = 0
            for seed in range(args.first_seed, args.first_seed + args.rounds):
                start_s = time.monotonic()
                try:
                    await restart_round(client, servers[seed % len(servers)], known, seed)
                except Exception as error:
                    failed += 1
                    print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
                print(f"seed {seed}: {time.monotonic() - start_s:.1f} s", flush=True)
    print(f"{args.rounds} rounds of {NUM_SESSIONS * TURNS} utterances, {args.servers} servers: {failed} rounds failed")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.restarts", description=__doc__)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--reconnect-s", type=float, default=20.0, help="how long clients go on trying")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
