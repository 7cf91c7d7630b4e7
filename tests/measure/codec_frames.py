"""Times one call of the codec decoder, by rows and frames: `python -m tests.measure.codec_frames`.

Uses random weights from a fixed seed in the published shape, which needs no download, or those of the checkpoint given
with --model. A call includes the copies to and from the device.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from sonorant.engine.checkpoint.config import Checkpoint, CodecDecoderConfig, TransformerConfig, load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.code2wav.run.runner import Code2WavRunner
from sonorant.engine.config import EngineConfig
from sonorant.engine.types import Int16Array

PUBLISHED_DECODER = CodecDecoderConfig(
    stack=TransformerConfig(
        hidden_size=512,
        intermediate_size=1024,
        num_layers=8,
        num_heads=16,
        num_kv_heads=16,
        head_dim=64,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        attention_bias=False,
    ),
    sliding_window=72,
    latent_dim=1024,
    codebook_dim=512,
    codebook_size=2048,
    decoder_dim=1536,
    num_quantizers=16,
    upsample_rates=(8, 5, 4, 3),
    upsampling_ratios=(2, 2),
)
MIN_CALLS = 5
MIN_TIMED_S = 0.4  # per shape


def main() -> None:
    args = _parser().parse_args()
    checkpoint = load_checkpoint(args.model or BUILTIN_VOICE_DIR)
    if args.model is None:
        checkpoint = replace(checkpoint, codec=replace(checkpoint.codec, decoder=PUBLISHED_DECODER))
    config = EngineConfig.of(
        model=checkpoint.folder,
        load_format="dummy" if args.model is None else "safetensors",
        code2wav_device=args.device,
        code2wav_dtype=args.dtype,
        num_slots=max(args.rows),
        max_decode_batch=max(args.rows),
        chunk_ramp=tuple(args.frames),
        enforce_eager=args.enforce_eager,
    )
    started_s = time.perf_counter()
    runner = Code2WavRunner(checkpoint, config)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() and args.device != "cpu" else "CPU"
    print(f"{where}, torch {torch.__version__}, {args.dtype}, {'eager' if args.enforce_eager else 'default'}: ", end="")
    print(f"ready in {time.perf_counter() - started_s:.1f} s")
    print(f"{'rows':>5} {'frames':>6} {'ms/call':>9} {'audio-s/s':>10}")
    for num_rows in args.rows:
        for num_frames in args.frames:
            codes = random_codes(checkpoint, num_rows, num_frames)
            call = partial(runner.decode, range(num_rows), codes)
            call_s = median_s(call)
            audio_s = num_rows * num_frames / checkpoint.frame_rate_hz
            print(f"{num_rows:5} {num_frames:6} {1e3 * call_s:9.3f} {audio_s / call_s:10.1f}", flush=True)
    if args.profile:
        print_profile(call)


def random_codes(checkpoint: Checkpoint, num_rows: int, num_frames: int) -> Int16Array:
    decoder = checkpoint.codec.decoder
    shape = (num_rows, num_frames, decoder.num_quantizers)
    return np.random.default_rng(0).integers(0, decoder.codebook_size, shape).astype(np.int16)


def median_s(call: Callable[[], object]) -> float:
    call()
    times_s: list[float] = []
    while len(times_s) < MIN_CALLS or sum(times_s) < MIN_TIMED_S:
        start_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - start_s)
    return statistics.median(times_s)


def print_profile(call: Callable[[], object]) -> None:
    """Print the device time of `call` by kernel."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
    kernels = [event for event in profile.key_averages() if event.device_type.name == "CUDA"]
    kernels.sort(key=lambda event: event.self_device_time_total, reverse=True)
    print(f"{sum(event.count for event in kernels)} kernels and copies; the longest, with ms, launches and name:")
    for event in kernels[:25]:
        print(f"{event.self_device_time_total / 1e3:8.3f} {event.count:5} {event.key[:100]}")


def _parser() -> argparse.ArgumentParser:
    def numbers(text: str) -> Sequence[int]:
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m tests.measure.codec_frames", description=__doc__)
    parser.add_argument("--model", type=Path, help="checkpoint folder (default: random weights, published shape)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", choices=("float32", "tf32", "float16"), default="float32")
    parser.add_argument("--rows", type=numbers, default=[1, 8, 64, 128], help="streams per call (default: 1,8,64,128)")
    parser.add_argument("--frames", type=numbers, default=[1, 4, 12], help="frames per stream (default: 1,4,12)")
    parser.add_argument("--enforce-eager", action="store_true", help="no CUDA graphs")
    parser.add_argument("--profile", action="store_true", help="device time by kernel of the last shape")
    return parser


if __name__ == "__main__":
    main()
