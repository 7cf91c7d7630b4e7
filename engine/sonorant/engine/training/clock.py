"""How far a stage has come: a part of its time, or of its steps where it has a number of them. A resumed run takes it
up where the last one left off."""

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

SAVE_EVERY_S = 60.0


class Clock:
    """Of a stage whose state lies in `state_file`: `resume`, then `start`. It is done when its time is up, or after
    `max_steps` if that is sooner."""

    def __init__(self, state_file: Path, max_steps: int | None = None) -> None:
        self.steps = 0
        self._max_steps = max_steps
        self._state_file = state_file
        self._begin = 0.0
        self.start(ends_at_s=0.0)

    def start(self, ends_at_s: float) -> None:
        """`ends_at_s`: of time.time()"""
        self._begun_s, self._ends_at_s = time.time(), ends_at_s
        self._saved_s = self._begun_s

    @property
    def done(self) -> float:
        """0 .. 1"""
        passed = (time.time() - self._begun_s) / max(self._ends_at_s - self._begun_s, 1e-3)
        of_steps = self.steps / self._max_steps if self._max_steps else 0.0
        return min(1.0, max(of_steps, self._begin + (1 - self._begin) * passed))

    @property
    def elapsed_s(self) -> float:
        return time.time() - self._begun_s

    def resume(self) -> Mapping[str, Any] | None:
        """What an earlier run saved, on the CPU; None if there was none."""
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
        """Whole or not at all."""
        self._saved_s = time.time()
        unfinished = self._state_file.with_suffix(".tmp")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"state": dict(state), "steps": self.steps, "done": self.done}, unfinished)
        os.replace(unfinished, self._state_file)


def falling_rate(done: float, steps: int, *, warm_up_steps: int, full_until: float, last: float) -> float:
    """A part of the full learning rate: rising for some steps, full for a part of the time, then a cosine."""
    warm = min(1.0, (steps + 1) / warm_up_steps)
    if done < full_until:
        return warm
    cosine = 0.5 * (1 + math.cos(math.pi * (done - full_until) / (1 - full_until)))
    return warm * (last + (1 - last) * cosine)
