"""Times the encoders of recordings by the length of a recording, and compares their codes with those of the CPU.

    python tests/measure/encoder_calls.py --model qwen3-tts-12hz-1.7b-base --load-format dummy --device cuda:0

On a GPU, each length is timed with its captured graph and without graphs.
"""

import argparse
import time

import numpy as np
import torch

from sonorant.engine import EngineConfig, resolve_model
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.model.reference import ReferenceEncoder
from sonorant.engine.types import Float32Array

LENGTHS_S = (3, 5, 10, 15, 30)
TIMES = 20
COMPARED = 8  # recordings


def sound(seconds: float, seed: int) -> Float32Array:
    at = np.arange(round(seconds * 24_000)) / 24_000
    chance = np.random.default_rng(seed)
    pitch = 120 + 60 * chance.random() + 20 * np.sin(2 * np.pi * at)
    voice = sum(np.sin(n * 2 * np.pi * np.cumsum(pitch) / 24_000) / n for n in range(1, 20))
    return (0.1 * voice * np.sin(5 * at) ** 2 + 0.003 * chance.standard_normal(len(at))).astype(np.float32)


def timed(encoder: ReferenceEncoder, seconds: float) -> str:
    samples = sound(seconds, 0)
    parts = []
    for what in (encoder.x_vector, encoder.codes):
        what(samples)
        begun_s = time.perf_counter()
        for _ in range(TIMES):
            what(samples)  # ends when the result is on the host
        parts.append(f"{1000 * (time.perf_counter() - begun_s) / TIMES:.2f}")
    return " + ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin_base")
    parser.add_argument("--load-format", default="safetensors")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def made(device: str) -> ReferenceEncoder:
        config = EngineConfig.of(resolve_model(args.model), load_format=args.load_format, encoder_device=device)
        return ReferenceEncoder(load_checkpoint(config.model), config.but(talker_device=device))

    plain, ready = made(args.device), made(args.device)
    begun_s = time.perf_counter()
    ready.prepare()
    print(f"loaded, and graphs captured, in {time.perf_counter() - begun_s:.1f} s", flush=True)
    print("recording, s    embedding + codes, ms: prepared    as it is", flush=True)
    for seconds in LENGTHS_S:
        print(f"{seconds:>12}    {timed(ready, seconds):>33}    {timed(plain, seconds)}", flush=True)
    reference = made("cpu")
    firsts, alls, distances = [], [], []
    for seed in range(COMPARED):
        samples = sound(3 + seed / 3, seed)
        same = ready.codes(samples) == reference.codes(samples)
        firsts.append(same[:, 0].mean())
        alls.append(same.mean())
        ours, theirs = ready.x_vector(samples), reference.x_vector(samples)
        distances.append(1 - float(ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)))
    print(f"codes as on the CPU: {np.mean(firsts):.3%} of the first codebook, {np.mean(alls):.3%} of all", flush=True)
    print(f"embeddings differ from the CPU's by a cosine distance of {max(distances):.2e} at most", flush=True)


if __name__ == "__main__":
    main()
