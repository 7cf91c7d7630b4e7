"""`sonorant plan`: works out how many GPUs a number of calls needs, from the measured capacity of one GPU.

Of all simultaneous calls, only those need speech whose agent is talking. Their number is the sum of many independent
variables, so its distribution is nearly normal: it is more than 3.1 standard deviations above the mean in only one
moment of a thousand.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonorant.bench.arguments import number, positive_int

DEVIATIONS = 3.1
FULL = 0.7  # share of a GPU's streams that may be in use as long as all GPUs work
MAX_UNDERRUNS = 0.01  # share of the listeners that may hear a gap


@dataclass(frozen=True, slots=True)
class Plan:
    speakers: int  # at the same time; exceeded in one moment of a thousand
    gpus: int
    gpus_with_reserve: int  # enough for FULL even if one of them fails
    full_share: float  # share of the streams of `gpus` that is in use
    share_without_one: float  # the same if one of them fails


def plan(calls: int, talk_share: float, streams_per_gpu: int) -> Plan:
    """Plan for `calls` simultaneous calls, in each of which the agent talks for `talk_share` (0 to 1) of the time."""
    mean = calls * talk_share
    speakers = math.ceil(mean + DEVIATIONS * math.sqrt(mean * (1 - talk_share)))
    gpus_when_all_work = math.ceil(speakers / (FULL * streams_per_gpu))
    gpus_when_one_fails = math.ceil(speakers / streams_per_gpu) + 1
    gpus = max(gpus_when_all_work, gpus_when_one_fails)
    return Plan(
        speakers=speakers,
        gpus=gpus,
        gpus_with_reserve=gpus_when_all_work + 1,
        full_share=speakers / (gpus * streams_per_gpu),
        share_without_one=speakers / ((gpus - 1) * streams_per_gpu),
    )


def streams_per_gpu(rows: Sequence[Mapping[str, Any]]) -> int:
    """The largest number of paced listeners in a benchmark's rows that were all served, nearly all without a gap.

    Rows with more listeners than a failed one do not count. 0 = even the smallest number failed.
    """
    best = 0
    for row in sorted((row for row in rows if row["kind"] == "paced"), key=lambda row: row["amount"]):
        if row["failed"] or row["underruns"] > MAX_UNDERRUNS:
            break
        best = int(row["amount"])
    return best


def price_of_speech(gpus: int, gpu_per_hour: float, calls: int, talk_share: float) -> float:
    """The price of an hour of speech if there are always this many calls."""
    return gpus * gpu_per_hour / (calls * talk_share)


EXAMPLES = """\
examples:
  sonorant bench --server-arguments "--model /models/custom-voice" --paced 250 500 1000 --json bench.json
  sonorant plan --bench bench.json --calls 10000 --talk-share 0.4
  sonorant plan --streams-per-gpu 1000 --calls 10000 --talk-share 0.4 --gpu-per-hour 3.5
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    measured = parser.add_mutually_exclusive_group(required=True)
    measured.add_argument(
        "--bench", type=Path, metavar="FILE", help="result of `sonorant bench --paced ... --json FILE` on one GPU"
    )
    measured.add_argument("--streams-per-gpu", type=positive_int, metavar="N", help="listeners that one GPU can serve")
    parser.add_argument("--calls", type=positive_int, required=True, metavar="N", help="simultaneous calls at the peak")
    parser.add_argument(
        "--talk-share",
        type=number("greater than 0 and at most 1", lambda share: 0 < share <= 1),
        default=0.4,
        metavar="P",
        help="share of a call in which the agent talks; default: %(default)s",
    )
    parser.add_argument(
        "--gpu-per-hour",
        type=number("a price of at least 0", lambda price: 0 <= price < math.inf),
        metavar="PRICE",
        help="price of one GPU per hour, to print the price of speech",
    )


async def run(args: argparse.Namespace) -> int:
    capacity = args.streams_per_gpu or _measured(args.bench)
    planned = plan(args.calls, args.talk_share, capacity)
    full, without_one = f"{planned.full_share:.0%}", f"{planned.share_without_one:.0%}"
    print(f"speakers   {planned.speakers} at the same time; agents talk {args.talk_share:g} of {args.calls} calls")
    print(f"capacity   {capacity} streams per GPU")
    print(f"GPUs       {planned.gpus}: {full} full, {without_one} with one of them gone")
    if planned.gpus_with_reserve > planned.gpus:
        print(f"           {planned.gpus_with_reserve} to stay at {FULL:.0%} with one of them gone")
    if args.gpu_per_hour is not None:
        price = price_of_speech(planned.gpus, args.gpu_per_hour, args.calls, args.talk_share)
        print(f"price      {price:.4f} for an hour of speech, while there are {args.calls} calls")
    return 0


def _measured(path: Path) -> int:
    """Streams per GPU, from a result of `sonorant bench`. Raises ValueError if the file does not contain them."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["summary"]
        capacity = streams_per_gpu(rows)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a file that `sonorant bench --json` wrote ({error!r})") from error
    if not capacity:
        raise ValueError(f"{path} has no paced load that was served without gaps; measure with --paced 100 200 ...")
    return capacity
