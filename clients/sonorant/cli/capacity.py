"""Works out how many GPUs a number of calls needs. Pure.

Of all simultaneous calls, only those need speech whose agent is talking. Their number is the sum of many independent
variables, so its distribution is nearly normal: it is more than 3.1 standard deviations above the mean in only one
moment of a thousand.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
