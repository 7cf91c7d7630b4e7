"""`sonorant bench`: puts loads on one or more servers, one after another, and reports the results."""

import argparse
import json
import shlex
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from sonorant.bench.arguments import check, loads_of, processes_of, speech_of, targets_of
from sonorant.bench.client_processes import ClientProcesses, client_processes
from sonorant.bench.grpc_speech import access_to
from sonorant.bench.loads import GRPC, Load, Target
from sonorant.bench.reporting import report
from sonorant.bench.reporting.environment import config_hash, environment
from sonorant.bench.reporting.statistics import Row, row
from sonorant.bench.speakers import SpeakingFailed
from sonorant.client.client import SpeechClient
from sonorant.client.local_server import ServerFailed, local_server

CAPACITY_MS = (50.0, 100.0)  # limits of the audible TTFA at p95


async def run(args: argparse.Namespace) -> int:
    """Run the loads; return exit status 1 if anything failed or cannot be compared."""
    if args.compare:
        return _compare(args)
    check(args)
    rows: list[Row] = []
    described: list[dict[str, Any]] = []
    broken_off = None
    try:
        async with _targets(args) as targets, _processes(args) as processes:
            described = [await _describe(target) for target in targets]
            for about in described:
                for note in over_limit_notes(loads_of(args), about):
                    print(f"note: {note}", file=sys.stderr)
            async for measured in _measured(args, processes, targets, described):
                rows.append(measured)
    except (ServerFailed, SpeakingFailed) as error:  # the rows measured so far are valid
        broken_off = str(error)
        print(f"sonorant bench: {error}", file=sys.stderr)
    if not rows:
        return 1
    keys = list(dict.fromkeys((r["target"], r["load"]) for r in rows))
    summary = [report.merged([r for r in rows if (r["target"], r["load"]) == key]) for key in keys]
    print(report.table(summary))
    for line in report.budgets(summary):
        print(line)
    if args.repeats > 1:
        print(f"\nleast/median/most of {args.repeats} repeats\n{report.spread_table(summary)}")
    for target in dict.fromkeys(r["target"] for r in summary if r["kind"] == "open"):
        sustained = {limit_ms: report.capacity(summary, target, limit_ms) for limit_ms in CAPACITY_MS}
        print(f"{target} sustains", "; ".join(f"{_rate(rate)} within {ms:g} ms" for ms, rate in sustained.items()))
    for message in sorted({message for r in rows for message in r["messages"]}):
        print(f"failed: {message}")
    comparable = _check_comparable(summary, args.max_difference)
    if args.plot:
        _plot(summary, args.plot)
    if args.json:
        result = {**_description(args, described), "broken_off": broken_off, "summary": summary, "runs": rows}
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if comparable and not broken_off and not any(r["failed"] for r in rows) else 1


async def _measured(
    args: argparse.Namespace, processes: ClientProcesses, targets: Sequence[Target], described: Sequence[dict[str, Any]]
) -> AsyncIterator[Row]:
    """Measure one target after another within each load, so that a drift of the machine affects all of them."""
    for repeat in range(args.repeats):
        for load in loads_of(args):
            for target, about in zip(targets, described, strict=True):
                speech = speech_of(args, load, about.get("languages", []), repeat)
                began_s = time.monotonic()
                parts = await processes.run(target, load, speech, args.timeout_s, processes_of(args, load))
                print(f"{target}, {load}: {time.monotonic() - began_s:.0f} s", file=sys.stderr)
                yield row(str(target), load, repeat, parts, args.max_client_lag_ms)


def over_limit_notes(loads: Sequence[Load], about: Mapping[str, Any]) -> list[str]:
    """Notes on loads beyond the server's own limits."""
    limits = {
        "sessions (--max-sessions)": about.get("max_sessions"),
        "streams (--num-slots, --max-queued-streams)": about.get("max_streams"),
    }
    return [
        f"{load} is more than the {limit} {what} that this server takes; the rest will be refused"
        for load in loads
        for what, limit in limits.items()
        if limit and load.kind != "open" and load.amount > limit
    ]


@asynccontextmanager
async def _targets(args: argparse.Namespace) -> AsyncIterator[list[Target]]:
    """The servers given by address; without any, or with --server-arguments, a server started for this run."""
    running = targets_of(args)
    if running and args.server_arguments is None:
        yield running
        return
    async with local_server(shlex.split(args.server_arguments or "")) as address:
        yield [Target(args.rpc, address, num_connections=args.connections), *running]


@asynccontextmanager
async def _processes(args: argparse.Namespace) -> AsyncIterator[ClientProcesses]:
    async with client_processes(max(processes_of(args, load) for load in loads_of(args))) as processes:
        yield processes


async def _describe(target: Target) -> dict[str, Any]:
    """The capabilities that a server reports."""
    if target.protocol not in GRPC:
        return {"model": target.model}
    async with SpeechClient(target.address, access_to(target, (target.keys or ("",))[0])) as client:
        capabilities = await client.capabilities()
    described: dict[str, Any] = MessageToDict(capabilities, preserving_proto_field_name=True)
    return described


def _description(args: argparse.Namespace, described: Sequence[dict[str, Any]]) -> dict[str, Any]:
    settings = {name: value for name, value in vars(args).items() if isinstance(value, (int, float, str, list, dict))}
    load_settings = {
        "loads": [(asdict(load), asdict(speech_of(args, load, [], 0))) for load in loads_of(args)],
        "servers": [args.rpc, args.server_arguments, args.openai_by, args.openai_model, args.openai_body],
    }
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **environment(),
        "config_hash": config_hash(load_settings),
        "settings": settings,
        "servers": described,
    }


def _compare(args: argparse.Namespace) -> int:
    """Print the results of several runs in one table; return the exit status."""
    rows = []
    for path in args.compare:
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))["summary"]
        except (ValueError, LookupError, TypeError):
            raise ValueError(f"{path} was not written by --json") from None
        rows += [{**row, "target": f"{row['target']} ({path.stem})"} for row in summary]
    print(report.table(rows))
    comparable = _check_comparable(rows, args.max_difference)
    if args.plot:
        _plot(rows, args.plot)
    return 0 if comparable else 1


def _check_comparable(rows: Sequence[Row], max_difference: float) -> bool:
    """Print which rows cannot be compared; return whether all can."""
    messages = report.incomparable(rows, max_difference)
    for message in messages:
        print(message)
    return not messages


def _rate(rate: float | None) -> str:
    return "none of these rates" if rate is None else f"{rate:g}/s"


def _plot(rows: Sequence[Row], path: Path) -> None:
    try:
        from sonorant.bench.reporting.plots import plot  # matplotlib is an extra, and slow to import
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install 'sonorant[bench]'") from None
    plot(rows, path)
