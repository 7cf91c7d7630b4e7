"""Measures how much later the first audio comes with two processes: `python -m sonorant.engine.tools.bench`.

The same utterances are spoken in turns by an Engine, whose talker and codec are two worker processes, and by the same
parts in one process: scheduler, batcher and both runners, called one after the other without rings. One utterance at a
time; timed from its text to its first samples at the caller, in total and by part.
"""

import argparse
import asyncio
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from tqdm import tqdm

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.config import CODEC_FORMATS, DtypeName, EngineConfig, LoadFormat, MpsMode
from sonorant.engine.cuda import use_device
from sonorant.engine.ipc.messages import EndStream, FirstChunk, OpenStream, PcmBatch
from sonorant.engine.one_process import OneProcess
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.serving.here import start_here
from sonorant.engine.serving.pool import EnginePool
from sonorant.engine.types import PcmChunk, StreamBudget, SynthesisParams
from sonorant.engine.workers.mps import mps_for, this_machine

TEXT = "The old man walked slowly along the river."
WARM_UP_UTTERANCES = 3  # each way


@dataclass(frozen=True, slots=True)
class Spoken:
    first_s: float  # to the first samples
    num_samples: int
    budget: StreamBudget

    def parts_ms(self) -> dict[str, float]:
        """Milliseconds of `first_s` by what they were spent on."""
        budget = self.budget
        parts_s = {
            "prompt": self.first_s - budget.total_s,
            "queue": budget.queue_s + budget.prefill_s,
            "step": budget.step_s,
            "to codec": budget.frames_ring_s + budget.codec_wait_s,
            "codec": budget.codec_s,
            "to caller": budget.pcm_ring_s,
        }
        return {name: 1e3 * part_s for name, part_s in parts_s.items()}


class InOneProcess:
    """Talker and Code2Wav in this process: a step of the talker and a call of Code2Wav never run at the same time."""

    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        use_device(config.talker.device)
        self._checkpoint = checkpoint
        self._tokenizer = Tokenizer.load(config.model, checkpoint.characters)
        self._process = OneProcess(checkpoint, config)
        self._stream_id = 0

    def speak(self, params: SynthesisParams) -> Spoken:
        began_s = time.monotonic()
        plan = PromptLayout(params, self._checkpoint, self._tokenizer).plan(self._tokenizer.encode(TEXT), ended=True)
        assert plan is not None
        self._stream_id += 1
        credit_frames = params.sampling.max_frames  # the caller takes everything at once
        self._process.open(OpenStream(self._stream_id, plan, params.sampling, credit_frames, began_s))
        first_s, num_samples, budget = 0.0, 0, None
        while True:
            _, pcm = self._process.turn()
            for record in pcm:
                if isinstance(record, FirstChunk):
                    budget = record.budget(time.monotonic())
                elif isinstance(record, PcmBatch):
                    first_s = first_s or time.monotonic() - began_s
                    num_samples += sum(map(len, record.samples))
                elif isinstance(record, EndStream):
                    assert budget is not None
                    return Spoken(first_s, num_samples, budget)
            if self._process.is_idle:
                self._process.wait()


async def speak(engine: EnginePool, params: SynthesisParams) -> Spoken:
    """Speak like `InOneProcess.speak`, in two processes."""
    first_s, num_samples, budget = 0.0, 0, None
    began_s = time.monotonic()
    async with engine.open(params) as stream:
        stream.push_text(TEXT)
        stream.end_text()
        while isinstance(event := await stream.next_event(), PcmChunk):
            first_s = first_s or time.monotonic() - began_s
            num_samples += event.samples.size
            budget = budget or event.budget
            stream.grant(event.num_frames)
    assert budget is not None
    return Spoken(first_s, num_samples, budget)


async def measure(config: EngineConfig, num_utterances: int, num_frames: int) -> dict[str, list[Spoken]]:
    """Return the timed utterances of "one process" and of "two processes"."""
    checkpoint = load_checkpoint(config.model)
    engine = await start_here([config])
    await engine.tried()
    spoken: dict[str, list[Spoken]] = {"one process": [], "two processes": []}
    try:
        one = InOneProcess(checkpoint, config)
        sampling = replace(checkpoint.default_sampling, max_frames=num_frames, ignore_eos=True)
        speaker = next(iter(checkpoint.talker.speaker_ids), None)
        for seed in tqdm(range(WARM_UP_UTTERANCES + num_utterances), unit="utterance", disable=None):
            params = SynthesisParams(replace(sampling, seed=seed), speaker=speaker)
            spoken["one process"].append(one.speak(params))
            spoken["two processes"].append(await speak(engine, params))
    finally:
        await engine.close()
    lengths = {each.num_samples for way in spoken.values() for each in way}
    assert lengths == {num_frames * checkpoint.codec.frame_samples}, lengths
    return {way: each[WARM_UP_UTTERANCES:] for way, each in spoken.items()}


async def run(args: argparse.Namespace) -> None:
    config = EngineConfig.of(
        model=resolve_model(args.model),
        load_format=args.load_format,
        dtype=args.dtype,
        talker_device=args.device,
        code2wav_device=args.device,
        code2wav_dtype=args.code2wav_dtype,
        num_slots=1,
        max_queued_streams=1,
        max_context=1024,
    )
    async with mps_for(args.mps, [config], this_machine()) as folder:
        spoken = await measure(replace(config, mps_pipe_directory=folder), args.utterances, args.frames)
    rows = {way: summary(each) for way, each in spoken.items()}
    one, two = rows.values()
    rows["difference"] = {name: two[name] - value for name, value in one.items()}
    print(f"{'ms':13}", *(f"{name:>9}" for name in one))
    for way, row in rows.items():
        print(f"{way:13}", *(f"{value:9.2f}" for value in row.values()))
    if args.json:
        settings = {name: str(value) for name, value in vars(args).items()}
        args.json.write_text(json.dumps({"settings": settings, "ms": rows}, indent=1) + "\n", encoding="utf-8")


def summary(spoken: Sequence[Spoken]) -> dict[str, float]:
    """Percentiles of the milliseconds to the first samples, by nearest rank; then the median of each part."""
    ordered = sorted(1e3 * each.first_s for each in spoken)
    total = {f"p{percent}": ordered[math.ceil(percent / 100 * len(ordered)) - 1] for percent in (50, 95, 100)}
    parts = [each.parts_ms() for each in spoken]
    return total | {name: statistics.median(each[name] for each in parts) for name in parts[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    asyncio.run(run(_parser().parse_args(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sonorant.engine.tools.bench", description=__doc__.partition("\n")[0]
    )
    add: Any = parser.add_argument
    add("--model", default=str(BUILTIN_VOICE_DIR), metavar="DIR|PRESET", help="default: the built-in voice")
    add("--load-format", choices=get_args(LoadFormat), default="safetensors")
    add("--dtype", choices=get_args(DtypeName), default="auto")
    add("--code2wav-dtype", choices=CODEC_FORMATS, default="float32")
    add("--device", default="auto", metavar="NAME")
    add("--mps", choices=get_args(MpsMode), default="auto", help="for the two processes; default: auto")
    add("--utterances", type=int, default=50, metavar="N", help="each way; default: 50")
    add("--frames", type=int, default=20, metavar="N", help="length of each; default: 20")
    add("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    main()
