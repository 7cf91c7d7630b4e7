"""Times the encoders of recordings by the length of a recording, and compares their codes with those of the CPU.

    python tests/measure/encoder_calls.py --model qwen3-tts-12hz-1.7b-base --load-format dummy --device cuda:0
    python tests/measure/encoder_calls.py --model builtin_base --device cuda:0 --compared 200

On a GPU, each length is timed with its captured graph and without graphs. Random weights are others on each device, so
with them nothing is compared.
"""

import argparse
import time

import numpy as np
import torch

from sonorant.engine import EngineConfig, resolve_model
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.encoder.reference import ReferenceEncoder
from sonorant.engine.model.codec.codec_encoder import USAGE_EPS, EncoderCodebook
from sonorant.engine.types import Float32Array

LENGTHS_S = (3, 5, 10, 15, 30)
TIMES = 20
NEAR_TIE = 1e-3  # of the nearest entry's distance


class PlainEncoder(ReferenceEncoder):
    """Without compiled functions, which do not show what their codebooks get."""

    def _functions(self, dtype: torch.dtype) -> None:
        return None


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
    parser.add_argument("--compared", type=int, default=8, metavar="N", help="recordings, with weights; default: 8")
    args = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def made(device: str, kind: type[ReferenceEncoder] = ReferenceEncoder) -> ReferenceEncoder:
        config = EngineConfig.of(resolve_model(args.model), load_format=args.load_format, encoder_device=device)
        return kind(load_checkpoint(config.model), config.but(talker_device=device))

    plain, ready = made(args.device), made(args.device)
    begun_s = time.perf_counter()
    ready.prepare()
    print(f"loaded, and graphs captured, in {time.perf_counter() - begun_s:.1f} s", flush=True)
    print("recording, s    embedding + codes, ms: prepared    as it is", flush=True)
    for seconds in LENGTHS_S:
        print(f"{seconds:>12}    {timed(ready, seconds):>33}    {timed(plain, seconds)}", flush=True)
    if args.load_format != "dummy":
        compare(ready, made("cpu", PlainEncoder), args.compared)


def compare(ready: ReferenceEncoder, reference: ReferenceEncoder, num_recordings: int) -> None:
    """Print how many codes are those of the reference, and how near the distances were of those that are not."""
    books = _codebooks(reference)
    residuals: list[torch.Tensor] = []
    for book in books:
        book.register_forward_hook(lambda _, inputs, __: residuals.append(inputs[0][0]))
    firsts = alls = num_frames = num_codes = num_changed = num_others = 0
    worst, farthest = 0.0, 0.0
    for seed in range(num_recordings):
        samples = sound(3 + 5 * seed / num_recordings, seed)
        residuals.clear()
        ours, theirs = ready.codes(samples), reference.codes(samples)
        same = ours == theirs
        firsts, alls = firsts + int(same[:, 0].sum()), alls + int(same.sum())
        num_frames, num_codes = num_frames + len(same), num_codes + same.size
        for frame in np.flatnonzero(~same.all(axis=1)).tolist():
            # A codebook gets what the ones before left, so of a frame only the first that differs tells anything; the
            # first one and the second see the vector itself.
            for number in {int(np.argmin(same[frame]))} | ({1} if not same[frame, 1] else set()):
                codebook = books[number]
                entries = codebook.embed_sum / codebook.cluster_usage.clamp(min=USAGE_EPS)[:, None]
                distances = (entries - residuals[number][frame]).norm(dim=-1)
                gap = float(distances[int(ours[frame, number])] / distances[int(theirs[frame, number])]) - 1
                worst, num_changed, num_others = max(worst, gap), num_changed + 1, num_others + (gap > NEAR_TIE)
        embedding, other = ready.x_vector(samples), reference.x_vector(samples)
        cosine = float(embedding @ other / np.linalg.norm(embedding) / np.linalg.norm(other))
        farthest = max(farthest, 1 - cosine)
    print(
        f"{num_recordings} recordings: as on the CPU are {firsts / num_frames:.4%} of {num_frames} codes of the first "
        f"codebook and {alls / num_codes:.4%} of all; of {num_changed} places where a frame begins to differ, "
        f"{num_others} are no near-ties ({NEAR_TIE:g} of the distance); the largest gap is {worst:.1e}",
        flush=True,
    )
    print(f"embeddings differ from the CPU's by a cosine distance of {farthest:.2e} at most", flush=True)


def _codebooks(encoder: ReferenceEncoder) -> list[EncoderCodebook]:
    codec = encoder._codec_encoder
    quantizer, num_codebooks = codec.quantizer, codec.num_codebooks
    semantic, acoustic = quantizer.semantic_residual_vector_quantizer, quantizer.acoustic_residual_vector_quantizer
    layers = [*semantic.layers, *acoustic.layers][:num_codebooks]
    return [book for layer in layers if isinstance(book := layer.get_submodule("codebook"), EncoderCodebook)]


if __name__ == "__main__":
    main()
