"""`python -m clients.bench`: a closed-loop benchmark of a running server, or of one it starts and stops itself."""

import argparse
import json
import shlex
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from clients.bench import load, report
from clients.client import SpeechClient
from clients.errors import SpeechError
from clients.local_server import ServerFailed, local_server, run_until_signal

DESCRIPTION = """\
Speaks with a number of streams at once, each of which begins its next utterance when the one before is over.

TTFA     from the first text sent to the first audio received
audible  the same to the first sound above -40 dB, as heard by a listener without a buffer
RTF      from the first text sent to the last audio received, per second of audio
underrun share of the utterances in which that listener had to wait after the first audio; gap: for how long in all
"""

EXAMPLES = """\
examples:
  python -m clients.bench --streams 1 4 16
  python -m clients.bench --server gpu-host:50051 --streams 1 32 64 --utterances 256 --json result.json
  python -m clients.bench --frames 60 --server-arguments "--model qwen3-tts-12hz-1.7b-customvoice --load-format dummy"
"""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m clients.bench",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--server", metavar="HOST:PORT", help="a running server (default: one of its own)")
    server.add_argument("--server-arguments", default="", metavar="ARGS", help="of its own server, in one string")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4], metavar="N", help="default: 1 4")
    parser.add_argument("--utterances", type=int, default=16, metavar="N", help="per number of streams; default: 16")
    parser.add_argument("--voice", default="", metavar="NAME")
    parser.add_argument("--frames", type=int, default=0, metavar="N", help="exact length of an utterance")
    parser.add_argument("--max-lead-ms", type=int, default=0, metavar="N", help="pace of the server; default: 0 = none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    return parser


async def bench(args: argparse.Namespace) -> int:
    async with AsyncExitStack() as stack:
        target = args.server
        if target is None:
            target = await stack.enter_async_context(local_server(shlex.split(args.server_arguments)))
        client = await stack.enter_async_context(SpeechClient(target))
        capabilities = await client.capabilities()
        rows = []
        for concurrency in args.streams:
            cell = load.Load(concurrency, args.utterances, args.voice, args.max_lead_ms, args.frames)
            rows.append(report.row(cell, await load.run(client, cell)))
            print(f"{concurrency} streams: {rows[-1]['wall_s']:g} s", file=sys.stderr)
    print(report.table(rows))
    for message in sorted({message for row in rows for message in row["failures"]}):
        print(f"failed: {message}")
    if args.json:
        result = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **report.environment(),
            "model": capabilities.model,
            "server_version": capabilities.server_version,
            "server_arguments": args.server_arguments,
            "results": rows,
        }
        args.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 1 if any(row["failed"] for row in rows) else 0


def main() -> None:
    args = parser().parse_args()
    try:
        status = run_until_signal(bench(args))
    except (ServerFailed, SpeechError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
