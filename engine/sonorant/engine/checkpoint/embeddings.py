"""Speaker embeddings without a recording: those of a checkpoint's own speakers, and mixes. No torch.

A prompt has one row for the voice. In it stands a row of the codec embedding table (a speaker of a CustomVoice
checkpoint) or what the speaker encoder of a Base checkpoint made of a recording; the official package puts both in the
same place, so either may be mixed with its like.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.checkpoint.weights_file import read_row
from sonorant.engine.errors import InvalidSynthesis
from sonorant.engine.types import Float32Array

CODEC_EMBEDDING = "talker.model.codec_embedding.weight"
MAX_MIXED_VOICES = 8

# A speaker embedding stands where rows of the codec embedding table stand, and is of their size. So many times the
# largest value of these rows are no voice, and may be more than sums of the talker can hold.
MAX_TIMES_LARGER = 1000.0
NUM_ROWS_COMPARED = 64
FIELD = "mix"

# Of the mean on the sphere: the step (radians) that is none, the most steps, and the sum of opposites (of length 1).
TOLERANCE = 1e-12
MAX_STEPS = 200
MIN_LENGTH = 1e-6

_Vectors = npt.NDArray[np.float64]


def speaker_embedding(checkpoint: Checkpoint, speaker: str) -> Float32Array:
    """The embedding [hidden] of a speaker of the checkpoint's table, by its name in lower case."""
    return read_row(checkpoint.folder / "model.safetensors", CODEC_EMBEDDING, checkpoint.talker.speaker_ids[speaker])


def largest_value(checkpoint: Checkpoint) -> float:
    """That a speaker embedding may have, by what the checkpoint's own embeddings have. Raises CheckpointError."""
    path = checkpoint.folder / "model.safetensors"
    rows = np.linspace(0, checkpoint.talker.vocab_size - 1, NUM_ROWS_COMPARED).astype(int).tolist()
    return MAX_TIMES_LARGER * max(float(np.abs(read_row(path, CODEC_EMBEDDING, row)).max()) for row in rows)


def mix_embeddings(
    embeddings: Sequence[Float32Array], weights: Sequence[float], *, spherical: bool = False
) -> Float32Array:
    """One voice [hidden] between several; weights are relative, and those of zero drop out.

    Linear: the weighted mean. Spherical: the direction is the weighted mean on the sphere (for two voices slerp), the
    length the weighted mean of the lengths. A voice alone is returned as it is, bit for bit. Raises InvalidSynthesis.
    """
    _check(embeddings, weights)
    parts = [(embedding, weight) for embedding, weight in zip(embeddings, weights, strict=True) if weight > 0]
    if len(parts) == 1:
        return parts[0][0].copy()
    vectors = np.stack([embedding for embedding, _ in parts]).astype(np.float64)  # [voices, hidden]
    largest = max(weight for _, weight in parts)  # first, so that the sum cannot overflow
    shares = np.array([weight / largest for _, weight in parts])
    shares /= shares.sum()
    return (_spherical(vectors, shares) if spherical else shares @ vectors).astype(np.float32)


def _spherical(vectors: _Vectors, shares: _Vectors) -> _Vectors:
    lengths = np.linalg.norm(vectors, axis=1)
    if not lengths.all():
        raise InvalidSynthesis(FIELD, "a speaker embedding of zeros has no direction; mix linearly, or leave it out")
    directions = vectors / lengths[:, None]
    mean = shares @ directions
    if np.linalg.norm(mean) < MIN_LENGTH:
        raise InvalidSynthesis(FIELD, "these voices are opposites, nothing lies between them; change the weights")
    mean /= np.linalg.norm(mean)
    for _ in range(MAX_STEPS):
        # Towards each voice along its great circle, by its share of the angle.
        cosines = np.clip(directions @ mean, -1.0, 1.0)
        tangents = directions - cosines[:, None] * mean
        sines = np.linalg.norm(tangents, axis=1)
        angles = np.arctan2(sines, cosines)
        ratios = np.divide(angles, sines, out=np.ones_like(angles), where=sines > TOLERANCE)
        step = (shares * ratios) @ tangents
        length = np.linalg.norm(step)
        if length < TOLERANCE:
            break
        mean = math.cos(length) * mean + math.sin(length) / length * step
        mean /= np.linalg.norm(mean)
    mixed: _Vectors = (shares @ lengths) * mean
    return mixed


def _check(embeddings: Sequence[Float32Array], weights: Sequence[float]) -> None:
    if len(embeddings) != len(weights):
        raise InvalidSynthesis(FIELD, f"there are {len(embeddings)} voices and {len(weights)} weights")
    if not 1 <= len(embeddings) <= MAX_MIXED_VOICES:
        raise InvalidSynthesis(FIELD, f"{len(embeddings)} voices cannot be mixed; use 1 to {MAX_MIXED_VOICES}")
    for weight in weights:
        if not 0 <= weight < math.inf:
            raise InvalidSynthesis(FIELD, f"a weight is {weight}; weights are 0 or more, and finite")
    if not any(weights):
        raise InvalidSynthesis(FIELD, "all weights are 0; at least one must be above")
    sizes = sorted({len(embedding) for embedding in embeddings})
    if len(sizes) > 1:
        raise InvalidSynthesis(
            FIELD,
            f"the speaker embeddings have {' and '.join(map(str, sizes))} values; voices of one mix must come from "
            "checkpoints of one size",
        )
    if not all(np.isfinite(embedding).all() for embedding in embeddings):
        raise InvalidSynthesis(FIELD, "a speaker embedding has values that are not finite; make it again")
