"""Times one frame, by rows: `python -m tests.measure.talker_frames --model qwen3-tts-12hz-1.7b-customvoice`.

A frame is one `TalkerRunner.step` with nothing but decode rows: talker, code predictor, sampling, and the copies to and
from the device. All streams are at about the same position, after a prompt of random ids; weights are random unless
--load-format says otherwise. The first frame of a single stream, with a prompt of ten rows, is timed too.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.config import DtypeName, EngineConfig, LoadFormat, WeightsName
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.rows import DecodeRow, PrefillRow
from sonorant.engine.types import PromptPlan

WARM_UP_STEPS = 5
SHORT_PROMPT_ROWS = 10
PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class Timing:
    what: str
    rows: int
    p50_ms: float
    p95_ms: float
    frame_s: float  # of audio

    @property
    def audio_s_per_s(self) -> float:
        return self.rows * self.frame_s / (self.p50_ms / 1000)


def main() -> None:
    parser = _parser()
    args = parser.parse_args()
    if args.steps <= WARM_UP_STEPS:
        parser.error(f"--steps: the first {WARM_UP_STEPS} are not timed; give more")
    checkpoint = load_checkpoint(resolve_model(args.model))
    rows = sorted(set(args.rows))
    num_pages_per_slot = -(-(args.context + args.steps) // PAGE_SIZE)
    config = EngineConfig.of(
        model=checkpoint.folder,
        load_format=args.load_format,
        dtype=args.dtype,
        talker_weights=args.weights,
        talker_device=args.device,
        num_slots=rows[-1],
        num_pages=rows[-1] * num_pages_per_slot,
        page_size=PAGE_SIZE,
        enforce_eager=args.enforce_eager,
    )
    began_s = time.monotonic()
    bench = _Bench(checkpoint, config, num_pages_per_slot)
    print(f"started in {time.monotonic() - began_s:.1f} s", file=sys.stderr)
    timings = [bench.first_frame(args.steps)]
    bench.open(rows[-1], args.context - args.steps // 2)
    timings += [bench.frames(count, args.steps) for count in rows]
    report = {
        "model": checkpoint.name,
        "dtype": args.dtype,
        "weights": args.weights,
        "context": args.context,
        "graphs": not args.enforce_eager,
        "torch": torch.__version__,
        **_machine(args.device),
        "timings": [
            {"what": t.what, "rows": t.rows, "p50_ms": t.p50_ms, "p95_ms": t.p95_ms, "audio_s_per_s": t.audio_s_per_s}
            for t in timings
        ],
    }
    for count in args.profile:
        print(bench.profile(count))
    print(f"{'':12} {'rows':>5} {'p50 ms':>9} {'p95 ms':>9} {'audio-s/s':>10}")
    for t in timings:
        print(f"{t.what:12} {t.rows:5} {t.p50_ms:9.2f} {t.p95_ms:9.2f} {t.audio_s_per_s:10.0f}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


class _Bench:
    """Streams in the slots 0, 1, ... of a runner, each with pages of its own."""

    def __init__(self, checkpoint: Checkpoint, config: EngineConfig, num_pages_per_slot: int) -> None:
        self._checkpoint = checkpoint
        self._frame_s = 1 / checkpoint.frame_rate_hz
        self._runner = TalkerRunner(checkpoint, config)
        self._max_prefill_rows = config.talker.max_prefill_rows
        self._pages = (
            np.arange(config.talker.num_slots * num_pages_per_slot).reshape(config.talker.num_slots, -1).tolist()
        )
        self._position = 0
        self._rng = np.random.default_rng(0)

    def first_frame(self, steps: int) -> Timing:
        calls = [lambda: self._runner.step([self._prompt(0, SHORT_PROMPT_ROWS)], [])] * steps
        return _timed("first frame", 1, calls, self._frame_s)

    def open(self, count: int, num_rows: int) -> None:
        """Prefill `count` slots with prompts of `num_rows` rows, and sample the first frame of each."""
        at_once = max(1, self._max_prefill_rows // num_rows)
        for first in range(0, count, at_once):
            slots = range(first, min(first + at_once, count))
            self._runner.step([self._prompt(slot, num_rows) for slot in slots], [])
        self._position = num_rows

    def frames(self, count: int, steps: int) -> Timing:
        return _timed("frame", count, [partial(self._frame, count, i) for i in range(steps)], self._frame_s)

    def profile(self, count: int) -> str:
        with torch.profiler.profile() as profile:
            for i in range(3):
                self._frame(count, i)
        table: str = profile.key_averages().table(
            sort_by="self_device_time_total", row_limit=30, max_name_column_width=70
        )
        return f"three frames of {count} rows\n{table}"

    def _prompt(self, slot: int, num_rows: int) -> PrefillRow:
        talker = self._checkpoint.talker
        text_ids = tuple(self._rng.integers(0, talker.text_vocab_size, num_rows).tolist())
        codec_ids = tuple(self._rng.integers(0, self._checkpoint.code_predictor.vocab_size, num_rows).tolist())
        plan = PromptPlan(text_ids, codec_ids, trailing=(), text_ended=True, num_text_tokens=1)
        sampling = replace(self._checkpoint.default_sampling, seed=slot)
        pages = tuple(self._pages[slot])
        return PrefillRow(slot, pages, plan, 0, num_rows, sampling, None, None, allow_eos=False)

    def _frame(self, count: int, step: int) -> None:
        text_id = self._checkpoint.text_ids.tts_pad
        rows = [DecodeRow(slot, text_id, self._position + step, step + 1, False) for slot in range(count)]
        self._runner.step([], rows)


def _timed(what: str, rows: int, steps: Sequence[Callable[[], object]], frame_s: float) -> Timing:
    times_ms = []
    for step in steps:
        began_ns = time.perf_counter_ns()
        step()
        times_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
    times_ms = sorted(times_ms[WARM_UP_STEPS:])
    return Timing(what, rows, statistics.median(times_ms), times_ms[int(len(times_ms) * 0.95)], frame_s)


def _machine(device: str) -> dict[str, str]:
    found = {"commit": _output("git", "rev-parse", "--short", "HEAD")}
    if device != "cpu" and torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["driver"] = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return found


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.measure.talker_frames", description=__doc__.partition("\n")[0]
    )
    add = parser.add_argument
    add("--model", default="qwen3-tts-12hz-1.7b-customvoice", metavar="DIR|PRESET")
    add("--load-format", choices=get_args(LoadFormat), default="dummy")
    add("--dtype", choices=get_args(DtypeName), default="auto")
    add("--weights", choices=get_args(WeightsName), default="auto")
    add("--device", default="auto", metavar="NAME")
    add("--rows", type=int, nargs="+", default=[1, 16, 64, 256, 1024], metavar="N", help="streams stepped together")
    add("--context", type=int, default=200, metavar="N", help="positions that a row sees, on average")
    add(
        "--steps",
        type=int,
        default=60,
        metavar="N",
        help=f"frames per number of rows, more than {WARM_UP_STEPS}, the first of which are not timed",
    )
    add("--enforce-eager", action="store_true", help="no CUDA graphs")
    add("--profile", type=int, nargs="*", default=[], metavar="ROWS", help="print where the time of a frame goes")
    add("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    main()
