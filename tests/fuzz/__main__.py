"""Noise for minutes: `python -m tests.fuzz [--minutes 5] [--seed N] [KIND...]`; `make fuzz ARGS="..."`.

The kind `kills` needs a server of its own with real workers, and seconds for a round: it comes only if it is named.
Each round has a seed of its own, which is told if it fails: its kind, that `--seed` and `--rounds 1` repeat it.
"""

import argparse
import logging
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from tests.fuzz.rough import rough
from tests.fuzz.rounds import ROUNDS, target
from tests.fuzz.worker_kills import run_killed_sessions

CHECK_EVERY = 20  # rounds
KILLS = "kills"


async def fuzz(kinds: list[str], seed: int, minutes: float, most: int) -> bool:
    rounds: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    until_s, told_s = time.monotonic() + minutes * 60, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            under_fire = await stack.enter_async_context(target(Path(folder)))
            killed = await stack.enter_async_context(rough(Path(folder))) if KILLS in kinds else None
            while time.monotonic() < until_s and rounds.total() < most:
                kind = kinds[rounds.total() % len(kinds)]
                try:
                    if kind in ROUNDS:
                        sent[kind] += await ROUNDS[kind](under_fire, random.Random(seed))
                    elif killed is not None:
                        sent[kind] += await run_killed_sessions(killed, random.Random(seed))
                    if rounds.total() % CHECK_EVERY == 0:
                        await under_fire.check()
                except Exception:
                    print(f"failed: {kind} with --seed {seed}", flush=True)
                    raise
                rounds[kind] += 1
                seed += 1
                if time.monotonic() > told_s + 30:
                    told_s = time.monotonic()
                    print(dict(rounds), flush=True)
            await under_fire.check()
    if killed is not None:
        print(f"{killed.num_kills} workers killed; utterances: {dict(killed.ends)}")
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{dict(rounds)} rounds of {dict(sent)} messages, bytes or files; at most {most_mb:.0f} MB, nothing found")
    return True


def main() -> None:
    known = (*ROUNDS, KILLS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(known)}; default: all but the last")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=sys.maxsize, help="at most")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    args = parser.parse_args()
    if wrong := set(args.kinds) - set(known):
        parser.error(f"no such kind: {', '.join(sorted(wrong))}; there are {', '.join(known)}")
    logging.basicConfig(level=logging.ERROR, handlers=[logging.NullHandler()])  # the rounds look at what is logged
    print(f"--seed {args.seed}", flush=True)
    uvloop.run(fuzz(args.kinds or list(ROUNDS), args.seed, args.minutes, args.rounds))


if __name__ == "__main__":
    main()
