"""Measures the official package on the same texts, for `sonorant bench --compare`: `python -m tests.measure.official`.

Needs qwen-tts beside sonorant. The package returns whole utterances, so its time to first audio is the time to all
audio. A batch begins and ends together, as in a server without continuous batching.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sonorant.bench import texts
from sonorant.bench.loads import Load
from sonorant.bench.measure import Measured, Outcome
from sonorant.bench.reporting import report
from sonorant.bench.reporting.environment import environment
from sonorant.bench.reporting.statistics import Row, row
from sonorant.client.listening.playback import PlaybackMeter

Speak = Callable[[Sequence[str]], tuple[Sequence[Any], int]]  # texts -> their samples in [-1, 1], sample rate


def main() -> None:
    args = _parser().parse_args()
    speak = load(args)
    rows = []
    for batch in args.batch:
        spoken = texts.texts(args.text_language, args.text_length, args.seed)
        rows.append(measure(speak, spoken, batch, args.seconds))
    print(report.table(rows))
    if args.json:
        result = {**environment(), "summary": rows, "runs": rows}
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measure(speak: Speak, spoken: Sequence[str], batch: int, seconds: float) -> Row:
    """Measure whole batches until the time is over, after one for warming up."""
    load = Load("closed", batch, seconds, 0.0)
    speak([spoken[n % len(spoken)] for n in range(batch)])
    outcomes: list[Outcome] = []
    begin_s = time.monotonic()
    while (planned_s := time.monotonic()) < begin_s + seconds:
        batch_texts = [spoken[(len(outcomes) + n) % len(spoken)] for n in range(batch)]
        audio, sample_rate_hz = speak(batch_texts)
        ended_s = time.monotonic()
        outcomes += [_outcome(samples, sample_rate_hz, planned_s, ended_s) for samples in audio]
    took_s = ended_s - begin_s
    return {**row("qwen-tts", load, 0, [Measured(outcomes)], 0.0), **_throughput(outcomes, took_s)}


def _outcome(samples: Any, sample_rate_hz: int, planned_s: float, ended_s: float) -> Outcome:
    meter = PlaybackMeter(sample_rate_hz)
    meter.text_sent(planned_s)
    meter.audio_arrived(ended_s, len(samples), (samples * 32767).astype("<i2").tobytes())
    audio_s = len(samples) / sample_rate_hz
    return Outcome(planned_s, planned_s, ended_s, True, "OK", "", audio_s, 0.0, meter.report())


def _throughput(outcomes: Sequence[Outcome], took_s: float) -> Row:
    """Throughput over the time of whole batches, because the last one ends after `seconds`."""
    audio_s = sum(outcome.window_audio_s for outcome in outcomes)
    return {"audio_s_per_s": float(f"{audio_s / took_s:.4g}"), "per_s": float(f"{len(outcomes) / took_s:.4g}")}


def load(args: argparse.Namespace) -> Speak:
    """Load the package's model with its own defaults. A fixed length needs a patch: the package has no setting for
    it."""
    import torch
    from qwen_tts import Qwen3TTSModel

    dtype = getattr(torch, args.dtype)
    model = Qwen3TTSModel.from_pretrained(args.model, device_map=args.device, dtype=dtype)
    voice = args.voice or model.get_supported_speakers()[0]
    language = args.text_language if args.text_language in texts.LANGUAGES[:2] else "auto"
    if args.frames:
        generate = model.model.talker.generate
        # One more for the end token, which must not come earlier.
        fixed = {"min_new_tokens": args.frames + 1, "max_new_tokens": args.frames + 1}
        model.model.talker.generate = lambda *values, **named: generate(*values, **named | fixed)

    def speak(batch_texts: Sequence[str]) -> tuple[Sequence[Any], int]:
        audio, sample_rate_hz = model.generate_custom_voice(
            list(batch_texts), speaker=voice, language=language, non_streaming_mode=False
        )
        return audio, sample_rate_hz

    return speak


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.official", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="a CustomVoice checkpoint")
    add("--device", default="cpu", metavar="NAME", help="cuda:0, cpu; default: %(default)s")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--batch", type=int, nargs="+", default=[1], metavar="N", help="texts per call; default: 1")
    add("--seconds", type=float, default=20.0, metavar="S", help="per batch size; default: 20")
    add("--frames", type=int, default=0, metavar="N", help="exact length of utterances")
    add("--text-language", choices=(*texts.LANGUAGES, "any"), default="english")
    add("--text-length", choices=(*texts.LENGTHS, "any"), default="medium")
    add("--voice", default="", metavar="NAME")
    add("--seed", type=int, default=0, metavar="N", help="seed of the order of texts")
    add("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    main()
