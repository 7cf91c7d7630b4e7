"""Heartbeats: a few shared words that a worker writes and the supervisor reads, about what it does and has done.

The first word says since when the worker has been busy with one step (0 = idle), so that a hang is noticed; a death
shows by the process itself. The other words are counters for metrics: how full the steps are, and how long they take.
"""

import mmap
import time
from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from sonorant.engine.ipc.handed import SharedMemory
from sonorant.engine.types import PassCounts

SIZE_BYTES = mmap.PAGESIZE

# Upper ends of histogram buckets; each histogram has one more bucket, for what is above.
ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # streams in a step
PROMPT_ROW_BUCKETS = (8, 16, 32, 64, 128, 256, 512)  # prompt rows in a step that has any
STEP_S_BUCKETS = (
    *(0.001, 0.002, 0.004, 0.006, 0.008, 0.012, 0.016, 0.024, 0.032, 0.048, 0.064),
    *(0.08, 0.128, 0.256, 0.512, 1.0, 2.0),
)


class Step(NamedTuple):
    """The work of one step."""

    num_rows: int  # one for each stream; a step with 0 rows is not counted
    num_prompt_rows: int = 0
    num_shared_rows: int = 0  # prompt rows of new streams that were skipped, as shared pages hold them already


@dataclass(frozen=True, slots=True)
class Work:
    """A worker's totals so far. A step that ends while they are read may be in only some of the numbers."""

    busy_s: float
    num_rows: int
    num_prompt_rows: int
    num_shared_rows: int
    num_steps: tuple[int, ...]  # by ROW_BUCKETS
    step_times: tuple[int, ...]  # steps by STEP_S_BUCKETS
    prompt_steps: tuple[int, ...]  # steps with prompt rows, by PROMPT_ROW_BUCKETS
    passes: PassCounts


# Words: two of time, those of Step, those of PassCounts, then the histograms.
_BUSY_SINCE_NS, _BUSY_NS, _STEP = 0, 1, 2
_PASSES = _STEP + len(Step._fields)
_ROWS = _PASSES + len(PassCounts.__slots__)
_TIMES = _ROWS + len(ROW_BUCKETS) + 1
_PROMPTS = _TIMES + len(STEP_S_BUCKETS) + 1
_END = _PROMPTS + len(PROMPT_ROW_BUCKETS) + 1

_COUNTS = attrgetter(*PassCounts.__slots__)


class Heartbeat(SharedMemory):
    def __init__(self) -> None:
        super().__init__(SIZE_BYTES)

    def busy(self) -> None:
        """Record that a step begins."""
        self._words[_BUSY_SINCE_NS] = time.monotonic_ns()  # the same clock in every process

    def idle(self, step: Step, passes: PassCounts) -> None:
        """Record that the step is over. `passes` counts the network's passes since the worker started."""
        words = self._words
        if step.num_rows:
            time_ns = time.monotonic_ns() - words[_BUSY_SINCE_NS]
            words[_BUSY_NS] += time_ns
            for word, count in enumerate(step, _STEP):
                words[word] += count
            for word, count in enumerate(_COUNTS(passes), _PASSES):
                words[word] = count
            words[_ROWS + bisect_left(ROW_BUCKETS, step.num_rows)] += 1
            words[_TIMES + bisect_left(STEP_S_BUCKETS, time_ns / 1e9)] += 1
            if step.num_prompt_rows:
                words[_PROMPTS + bisect_left(PROMPT_ROW_BUCKETS, step.num_prompt_rows)] += 1
        words[_BUSY_SINCE_NS] = 0

    @property
    def busy_since_ns(self) -> int:
        """When the present step began, on the monotonic clock; 0 when idle."""
        return self._words[_BUSY_SINCE_NS]

    def work(self) -> Work:
        words = self._words
        return Work(
            words[_BUSY_NS] / 1e9,
            *Step(*words[_STEP:_PASSES]),
            num_steps=tuple(words[_ROWS:_TIMES]),
            step_times=tuple(words[_TIMES:_PROMPTS]),
            prompt_steps=tuple(words[_PROMPTS:_END]),
            passes=PassCounts(*words[_PASSES:_ROWS]),
        )
