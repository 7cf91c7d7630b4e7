"""Speaker embeddings without a recording: those of a checkpoint's own speakers, and mixes. No torch.

A prompt has one row for the voice. It holds a row of the codec embedding table (a speaker of a CustomVoice checkpoint)
or the speaker encoder's embedding of a recording (Base). The official package puts both in the same place, so
embeddings of the same kind may be mixed.
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

# A speaker embedding takes the place of a row of the codec embedding table, so its values are of similar magnitude.
# Values this many times larger than those of the table are no voice, and could overflow in the talker.
MAX_TIMES_LARGER = 1000.0
NUM_ROWS_COMPARED = 64
FIELD = "mix"

# For the mean on the sphere:
TOLERANCE = 1e-12  # radians; a smaller step ends the iteration
MAX_STEPS = 200
MIN_LENGTH = 1e-6  # of the mean of unit vectors; if it is shorter, they are opposites

_Vectors = npt.NDArray[np.float64]


def speaker_embedding(checkpoint: Checkpoint, speaker: str) -> Float32Array:
    """Return the embedding [hidden] of one of the checkpoint's speakers, by name in lower case."""
    return read_row(checkpoint.folder / "model.safetensors", CODEC_EMBEDDING, checkpoint.talker.speaker_ids[speaker])


def largest_value(checkpoint: Checkpoint) -> float:
    """Return the largest value allowed in a speaker embedding, judged by the checkpoint's own embeddings.

    Raises CheckpointError if these cannot be read.
    """
    path = checkpoint.folder / "model.safetensors"
    rows = np.linspace(0, checkpoint.talker.vocab_size - 1, NUM_ROWS_COMPARED).astype(int).tolist()
    return MAX_TIMES_LARGER * max(float(np.abs(read_row(path, CODEC_EMBEDDING, row)).max()) for row in rows)


def mix_embeddings(
    embeddings: Sequence[Float32Array], weights: Sequence[float], *, spherical: bool = False
) -> Float32Array:
    """Mix several voices into one [hidden]. Weights are relative; voices with weight 0 drop out.

    Linear: the weighted mean. Spherical: the direction is the weighted mean on the sphere (slerp for two voices), the
    length is the weighted mean of the lengths. A single voice is returned bit for bit. Raises InvalidSynthesis.
    """
    _check(embeddings, weights)
    parts = [(embedding, weight) for embedding, weight in zip(embeddings, weights, strict=True) if weight > 0]
    if len(parts) == 1:
        return parts[0][0].copy()
    vectors = np.stack([embedding for embedding, _ in parts]).astype(np.float64)  # [voices, hidden]
    largest = max(weight for _, weight in parts)  # dividing by it first keeps the sum from overflowing
    shares = np.array([weight / largest for _, weight in parts])
    shares /= shares.sum()
    return (_spherical(vectors, shares) if spherical else shares @ vectors).astype(np.float32)


def _spherical(vectors: _Vectors, shares: _Vectors) -> _Vectors:
    lengths = np.linalg.norm(vectors, axis=1)
    if not lengths.all():
        raise InvalidSynthesis(FIELD, "a speaker embedding of zeros has no direction; mix linearly or leave it out")
    directions = vectors / lengths[:, None]
    mean = shares @ directions
    if np.linalg.norm(mean) < MIN_LENGTH:
        raise InvalidSynthesis(FIELD, "these voices are opposites, so no voice lies between them; change the weights")
    mean /= np.linalg.norm(mean)
    for _ in range(MAX_STEPS):
        # Step towards each voice along its great circle, by its share of the angle.
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
        raise InvalidSynthesis(FIELD, "all weights are 0; at least one must be above 0")
    sizes = sorted({len(embedding) for embedding in embeddings})
    if len(sizes) > 1:
        raise InvalidSynthesis(
            FIELD,
            f"the speaker embeddings have {' and '.join(map(str, sizes))} values; all voices of a mix must come from "
            "checkpoints of one size",
        )
    if not all(np.isfinite(embedding).all() for embedding in embeddings):
        raise InvalidSynthesis(FIELD, "a speaker embedding has values that are not finite; make it again")
