"""How many GPUs a number of calls needs. Pure.

Of all calls at the same time only those speak whose agent has the word. Their number is a sum of many independent ones,
so it is nearly normal: 3.1 standard deviations over the mean are exceeded in one moment of a thousand.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEVIATIONS = 3.1
FULL = 0.7  # of a GPU's streams, at most, as long as all GPUs are there
MAX_UNDERRUNS = 0.01  # of the listeners: at most so many heard a gap


@dataclass(frozen=True, slots=True)
class Plan:
    speakers: int  # at the same time, all but one moment in a thousand
    gpus: int
    gpus_with_reserve: int  # still at most FULL with one of them gone
    full_share: float  # of the streams of `gpus`
    share_without_one: float


def plan(calls: int, talk_share: float, streams_per_gpu: int) -> Plan:
    """`calls` at the same time, of each of which the agent talks `talk_share`, from 0 to 1."""
    mean = calls * talk_share
    speakers = math.ceil(mean + DEVIATIONS * math.sqrt(mean * (1 - talk_share)))
    when_all_are_there = math.ceil(speakers / (FULL * streams_per_gpu))
    when_one_is_gone = math.ceil(speakers / streams_per_gpu) + 1
    gpus = max(when_all_are_there, when_one_is_gone)
    return Plan(
        speakers=speakers,
        gpus=gpus,
        gpus_with_reserve=when_all_are_there + 1,
        full_share=speakers / (gpus * streams_per_gpu),
        share_without_one=speakers / ((gpus - 1) * streams_per_gpu),
    )


def streams_per_gpu(rows: Sequence[Mapping[str, Any]]) -> int:
    """The most paced listeners of a benchmark's rows that all were served, nearly none of them with a gap.

    Rows are in the order of `summary`; those above one that failed count for nothing. 0 = not even the fewest were.
    """
    best = 0
    for row in sorted((row for row in rows if row["kind"] == "paced"), key=lambda row: row["amount"]):
        if row["failed"] or row["underruns"] > MAX_UNDERRUNS:
            break
        best = int(row["amount"])
    return best


def price_of_speech(gpus: int, gpu_per_hour: float, calls: int, talk_share: float) -> float:
    """Of an hour of speech, if there are always so many calls."""
    return gpus * gpu_per_hour / (calls * talk_share)
