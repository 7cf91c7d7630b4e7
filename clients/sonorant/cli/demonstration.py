"""`make demo`: starts a server with the built-in checkpoint, lets it speak a text word by word into demo.wav, and stops
it."""

import argparse
import shlex
import sys
import time

from sonorant.cli import main as cli
from sonorant.client.errors import SpeechError
from sonorant.client.interrupts import run_until_signal
from sonorant.client.local_server import ServerFailed, local_server

TEXT = "Good morning. These words are sent one by one, and each of them is spoken while the next is still on its way."
PAUSE_MS = 60
WAV = "demo.wav"


async def demo() -> int:
    print("starting a server with the built-in checkpoint ...", flush=True)
    began_s = time.monotonic()
    async with local_server() as target:
        print(f"serving at {target} after {time.monotonic() - began_s:.1f} s", flush=True)
        say = ["say", "--server", target, "--word-by-word", "--pause-ms", str(PAUSE_MS), "--wav", WAV, TEXT]
        print(f"$ sonorant {shlex.join(say)}", flush=True)
        args = cli.parser().parse_args(say)
        status: int = await args.run(args)
    if status == 0:
        print(f"wrote {WAV}; the server is stopped")
    return status


def main() -> None:
    argparse.ArgumentParser(prog="make demo", description=__doc__).parse_args()
    try:
        status = run_until_signal(demo())
    except (ServerFailed, SpeechError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        status = 1
    sys.exit(status)
