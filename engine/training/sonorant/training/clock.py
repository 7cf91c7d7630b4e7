"""How much of a stage is done: the share of its time, or of its steps if their number is limited. A resumed run
continues where the last one stopped."""

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

SAVE_EVERY_S = 60.0


class Clock:
    """The clock of a stage, and its state in `state_file`. Call `resume`, then `start`. The stage is done when its time
    is up, or after `max_steps` if that is sooner."""

    def __init__(self, state_file: Path, max_steps: int | None = None) -> None:
        self.steps = 0
        self._max_steps = max_steps
        self._state_file = state_file
        self._begin = 0.0
        self.start(ends_at_s=0.0)

    def start(self, ends_at_s: float) -> None:
        """Start the time, which ends at `ends_at_s` of time.time()."""
        self._begun_s, self._ends_at_s = time.time(), ends_at_s
        self._saved_s = self._begun_s

    @property
    def done(self) -> float:
        """The share of the stage that is done, 0 .. 1."""
        passed = (time.time() - self._begun_s) / max(self._ends_at_s - self._begun_s, 1e-3)
        of_steps = self.steps / self._max_steps if self._max_steps else 0.0
        return min(1.0, max(of_steps, self._begin + (1 - self._begin) * passed))

    @property
    def elapsed_s(self) -> float:
        return time.time() - self._begun_s

    def resume(self) -> Mapping[str, Any] | None:
        """Load the state that an earlier run saved, on the CPU; None if there is none."""
        if not self._state_file.exists():
            return None
        saved = torch.load(self._state_file, map_location="cpu", weights_only=True)
        self.steps, self._begin = saved["steps"], saved["done"]
        state: Mapping[str, Any] = saved["state"]
        return state

    @property
    def wants_save(self) -> bool:
        return time.time() - self._saved_s > SAVE_EVERY_S

    def save(self, state: Mapping[str, Any]) -> None:
        """Write the state to the file, whole or not at all."""
        self._saved_s = time.time()
        unfinished = self._state_file.with_suffix(".tmp")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"state": dict(state), "steps": self.steps, "done": self.done}, unfinished)
        os.replace(unfinished, self._state_file)


def falling_rate(done: float, steps: int, *, warm_up_steps: int, full_until: float, last: float) -> float:
    """The learning rate as a share of the full one: it rises for some steps, stays full until `full_until` of the time,
    then falls as a cosine to `last`."""
    warm = min(1.0, (steps + 1) / warm_up_steps)
    if done < full_until:
        return warm
    cosine = 0.5 * (1 + math.cos(math.pi * (done - full_until) / (1 - full_until)))
    return warm * (last + (1 - last) * cosine)
