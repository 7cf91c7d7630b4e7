"""`sonorant bench`: loads on one or more servers, one after another, and what came of it."""

import argparse
import contextlib
import json
import shlex
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from clients.bench import report, texts
from clients.bench.crew import Crew, crew_of, default_processes, num_processes
from clients.bench.environment import config_hash, environment
from clients.bench.loads import Load, Speech, Target
from clients.bench.speakers import LISTENER_LEAD_MS, UtteranceFailed
from clients.bench.statistics import Row, row
from clients.client import SpeechClient
from clients.local_server import ServerFailed, local_server

LISTENERS_PER_S = 100  # of paced loads come during the warm-up

DESCRIPTION = """\
Puts load on a server, and measures at the client what its listeners get.

loads
  --closed N   N speakers, each of which begins its next utterance when the one before is over
  --open R     R utterances per second begin at random (Poisson), whatever the server does
  --paced N    N listeners hear one utterance after another without a pause, each in a session held to the end

table
  TTFA         from the first text sent to the first audio received; planned: from when it was to begin
  audible      to the first sound (-45 dBFS), as heard by a listener without a start buffer
  RTF          from the first text sent to the last audio received, per second of audio
  underruns    share of the utterances in which that listener had to wait after the first audio
  gap max      the longest such wait, ms; c50, c100, c200: share without one of more than so many ms
  audio-s/s    audio received within the measured time, over that time
"""

EXAMPLES = """\
examples:
  sonorant bench --frames 50
  sonorant bench --server gpu-host:50051 --closed 1 64 --open 20 100 --paced 1000 --frames 69 --json result.json
  sonorant bench --server-arguments "--model qwen3-tts-12hz-1.7b-customvoice --load-format dummy" --frames 69
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    servers = parser.add_argument_group("servers (one of its own, on the built-in voice, if none is given)")
    servers.add_argument("--server", action="append", default=[], metavar="HOST:PORT", help="a Sonorant server")
    servers.add_argument("--server-arguments", metavar="ARGS", help="of a server of its own, in one string")
    servers.add_argument(
        "--rpc", choices=("speak", "synthesize-stream"), default="speak", help="by which RPC; default: %(default)s"
    )

    loads = parser.add_argument_group("loads (default: --closed 1 4)")
    loads.add_argument("--closed", type=_positive_int, nargs="+", default=[], metavar="N")
    loads.add_argument("--open", type=_positive, nargs="+", default=[], metavar="R")
    loads.add_argument("--paced", type=_positive_int, nargs="+", default=[], metavar="N")
    loads.add_argument("--seconds", type=_positive, default=20.0, metavar="S", help="measured; default: 20")
    loads.add_argument("--paced-seconds", type=_positive, metavar="S", help="of paced loads; default: --seconds")
    loads.add_argument("--warm-up-s", type=_positive, default=3.0, metavar="S", help="before that; default: 3")
    loads.add_argument("--repeats", type=_positive_int, default=1, metavar="N", help="of everything, in turns")
    loads.add_argument("--timeout-s", type=_positive, default=120.0, metavar="S", help="per utterance; default: 120")

    speech = parser.add_argument_group("speech")
    speech.add_argument("--frames", type=_positive_int, default=0, metavar="N", help="exact length of utterances")
    speech.add_argument("--text-language", choices=(*texts.LANGUAGES, "any"), help="default: what the server speaks")
    speech.add_argument("--text-length", choices=(*texts.LENGTHS, "any"), default="medium", help="default: medium")
    speech.add_argument("--words-per-s", type=_positive, default=0.0, metavar="X", help="word by word, by Speak")
    speech.add_argument("--voice", default="", metavar="NAME")
    speech.add_argument("--max-lead-ms", type=int, metavar="N", help="default: 0 = no pace; 2000 for paced loads")
    speech.add_argument("--seed", type=int, default=0, metavar="N", help="of texts, arrivals, sampling; +1 per repeat")

    client = parser.add_argument_group("client")
    client.add_argument(
        "--processes",
        type=_positive_int,
        default=default_processes(),
        metavar="N",
        help="at most; default: %(default)s",
    )
    client.add_argument(
        "--max-client-lag-ms", type=_positive, default=10.0, metavar="X", help="invalid beyond this p99; default: 10"
    )
    client.add_argument(
        "--max-difference", type=_positive, default=0.03, metavar="X", help="of mean audio length; default: 0.03"
    )

    output = parser.add_argument_group("output (besides the table)")
    output.add_argument("--json", type=Path, metavar="FILE", help="everything measured")
    output.add_argument("--plot", type=Path, metavar="FILE", help="pictures, as PNG or what the name ends with")
    output.add_argument("--compare", type=Path, nargs="+", metavar="FILE", help="measure nothing: results of --json")


async def run(args: argparse.Namespace) -> int:
    """Returns the exit status: 1 if anything failed or cannot be compared."""
    if args.compare:
        return compare(args)
    loads = loads_of(args)
    size = min(args.processes, max(map(num_processes, loads)))
    try:
        async with _targets(args) as targets, crew_of(size) as crew:
            described = [await _describe(target) for target in targets]
            rows = await _measure_all(args, crew, targets, loads, described)
    except (ServerFailed, UtteranceFailed) as error:
        print(f"sonorant bench: {error}", file=sys.stderr)
        return 1
    keys = list(dict.fromkeys((r["target"], r["load"]) for r in rows))
    summary = [report.merged([r for r in rows if (r["target"], r["load"]) == key]) for key in keys]
    print(report.table(summary))
    if args.repeats > 1:
        print(f"\nleast/median/most of {args.repeats} repeats\n{report.spread_table(summary)}")
    for message in sorted({message for r in rows for message in r["messages"]}):
        print(f"failed: {message}")
    complaints = report.incomparable(summary, args.max_difference)
    print("".join(f"{complaint}\n" for complaint in complaints), end="")
    if args.plot:
        _plot(summary, args.plot)
    if args.json:
        _write(args, described, rows, summary, complaints)
    return 1 if complaints or any(r["failed"] for r in rows) else 0


def compare(args: argparse.Namespace) -> int:
    """Results of several runs side by side."""
    rows = []
    for path in args.compare:
        result = json.loads(path.read_text(encoding="utf-8"))
        rows += [{**row, "target": f"{row['target']} ({path.stem})"} for row in result["summary"]]
    print(report.table(rows))
    complaints = report.incomparable(rows, args.max_difference)
    print("".join(f"{complaint}\n" for complaint in complaints), end="")
    if args.plot:
        _plot(rows, args.plot)
    return 1 if complaints else 0


def _plot(rows: Sequence[Row], path: Path) -> None:
    try:
        from clients.bench.plots import plot  # matplotlib is an extra, and slow to import
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install 'sonorant[bench]'") from None
    plot(rows, path)


def loads_of(args: argparse.Namespace) -> list[Load]:
    closed = args.closed if args.closed or args.open or args.paced else (1, 4)
    paced_seconds = args.paced_seconds or args.seconds
    return [
        *(Load("closed", amount, args.seconds, args.warm_up_s) for amount in closed),
        *(Load("open", amount, args.seconds, args.warm_up_s) for amount in args.open),
        *(Load("paced", n, paced_seconds, max(args.warm_up_s, n / LISTENERS_PER_S)) for n in args.paced),
    ]


async def _measure_all(
    args: argparse.Namespace, crew: Crew, targets: Sequence[Target], loads: Sequence[Load], described: Sequence[Any]
) -> list[Row]:
    """Target after target within a load, so that what drifts drifts for all of them."""
    rows = []
    for repeat in range(args.repeats):
        for load in loads:
            for target, about in zip(targets, described, strict=True):
                speech = speech_of(args, about.get("languages", []), args.seed + repeat)
                if load.kind == "paced":
                    speech = replace(speech, max_lead_ms=speech.max_lead_ms or LISTENER_LEAD_MS)
                began_s = time.monotonic()
                parts = await crew.run(target, load, speech, args.timeout_s)
                rows.append(row(target, load, repeat, parts, args.max_client_lag_ms))
                print(f"{target}, {load}: {time.monotonic() - began_s:.0f} s", file=sys.stderr)
    return rows


def speech_of(args: argparse.Namespace, languages: Sequence[str], seed: int) -> Speech:
    """Raises ValueError for texts that the server does not speak."""
    language = args.text_language or texts.default_language(languages)
    if languages and language not in (*languages, "mixed", "any"):
        raise ValueError(f"the server does not speak {language}; it speaks {', '.join(languages)}")
    return Speech(
        texts=texts.texts(language, args.text_length, args.seed),
        seed=seed,
        voice=args.voice,
        language=language if language in languages else "",
        num_frames=args.frames,
        max_lead_ms=args.max_lead_ms or 0,
        words_per_s=args.words_per_s,
    )


@contextlib.asynccontextmanager
async def _targets(args: argparse.Namespace) -> AsyncIterator[list[Target]]:
    targets = [Target(args.rpc, address) for address in args.server]
    if targets and args.server_arguments is None:
        yield targets
        return
    async with local_server(shlex.split(args.server_arguments or "")) as address:
        yield [Target(args.rpc, address), *targets]


async def _describe(target: Target) -> dict[str, Any]:
    async with SpeechClient(target.address) as client:
        capabilities = await client.capabilities()
    described: dict[str, Any] = MessageToDict(capabilities, preserving_proto_field_name=True)
    return described


def _write(
    args: argparse.Namespace,
    described: Sequence[Any],
    rows: Sequence[Row],
    summary: Sequence[Row],
    complaints: Sequence[str],
) -> None:
    settings = {name: value for name, value in vars(args).items() if isinstance(value, (int, float, str, list))}
    asked = {"loads": [asdict(load) for load in loads_of(args)], "speech": asdict(speech_of(args, [], args.seed))}
    result = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **environment(),
        "config_hash": config_hash(asked),
        "settings": settings,
        "servers": described,
        "not_comparable": complaints,
        "summary": summary,
        "runs": rows,
    }
    args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not greater than 0")
    return value


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value
