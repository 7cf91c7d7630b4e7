"""Weights that depend on the seed and the tensor's name alone."""

import math
import zlib

import numpy as np

from tests.tiny_checkpoint.layers import Shapes


def random_weights(shapes: Shapes, seed: int) -> dict[str, np.ndarray]:
    return {name: _weight(name, shape, seed) for name, shape in shapes.items()}


def _weight(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Of a scale at which every part of the network matters."""
    normal = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape).astype(np.float32)
    kind = name.rpartition(".")[2]
    if kind == "initialized":
        return np.ones(shape, np.float32)
    if kind == "cluster_usage":
        return 1.0 + np.abs(normal)
    if kind in ("scale", "gamma") or (kind == "weight" and "norm" in name):
        return 1.0 + 0.1 * normal
    if "embed" in name:
        return normal
    if len(shape) == 1:
        return 0.1 * normal  # biases, and the logs of SnakeBeta
    gain = 1.0
    if name.startswith("decoder.decoder") and shape[-1] in (1, 7):
        gain = 0.2  # residual branches of the codec's decoder; else its output saturates
    elif name.startswith("talker.") and "self_attn" in name:
        gain = 3.0  # else the codes hardly depend on what came before the last row
    return normal * np.float32(gain / math.sqrt(math.prod(shape[1:])))
