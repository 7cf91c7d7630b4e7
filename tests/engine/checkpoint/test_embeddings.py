import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load_file

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.embeddings import CODEC_EMBEDDING, MAX_MIXED_VOICES, mix_embeddings, speaker_embedding
from sonorant.engine.errors import InvalidSynthesis
from sonorant.engine.types import Float32Array
from tests.tiny_checkpoint import write_tiny_checkpoint

HIDDEN = 8
embeddings = arrays(np.float32, HIDDEN, elements=st.floats(-4, 4, width=32)).filter(lambda e: np.linalg.norm(e) > 1e-3)
weights = st.floats(0.01, 1e6)
voices = st.lists(st.tuples(embeddings, weights), min_size=1, max_size=MAX_MIXED_VOICES)
Voices = list[tuple[Float32Array, float]]


def mixed(some: Voices, *, spherical: bool) -> Float32Array:
    return mix_embeddings([e for e, _ in some], [w for _, w in some], spherical=spherical)


def all_on_one_side(some: Voices) -> bool:
    """So that there is one mean on the sphere, far from its opposite."""
    directions = np.stack([e / np.linalg.norm(e) for e, _ in some])
    return bool((directions @ directions.T).min() > 0)


@given(voices, st.booleans(), st.data())
def test_a_voice_alone_is_itself_bit_for_bit(some: Voices, spherical: bool, data: st.DataObject) -> None:
    only = data.draw(st.integers(0, len(some) - 1))
    silenced = [(e, w if n == only else 0.0) for n, (e, w) in enumerate(some)]
    result = mixed(silenced, spherical=spherical)
    assert result.tobytes() == some[only][0].tobytes()
    assert not np.shares_memory(result, some[only][0])


@given(voices)
def test_linear_is_the_weighted_mean(some: Voices) -> None:
    shares = np.array([w for _, w in some]) / sum(w for _, w in some)
    expected = sum(share * e.astype(np.float64) for share, (e, _) in zip(shares, some, strict=True))
    np.testing.assert_allclose(mixed(some, spherical=False), expected, rtol=1e-6, atol=1e-6)


@given(embeddings, embeddings, st.floats(0.01, 0.99))
def test_two_voices_on_the_sphere_are_slerp(one: Float32Array, other: Float32Array, share: float) -> None:
    a, b = (e.astype(np.float64) / np.linalg.norm(e.astype(np.float64)) for e in (one, other))
    angle = math.acos(np.clip(a @ b, -1, 1))
    if not 1e-3 < angle < 3:
        return
    direction = (math.sin((1 - share) * angle) * a + math.sin(share * angle) * b) / math.sin(angle)
    length = (1 - share) * np.linalg.norm(one.astype(np.float64)) + share * np.linalg.norm(other.astype(np.float64))
    result = mix_embeddings([one, other], [1 - share, share], spherical=True)
    np.testing.assert_allclose(result, length * direction, atol=1e-5 * length)


@settings(max_examples=40)  # the filter takes most of the time
@given(voices.filter(all_on_one_side), st.booleans(), st.randoms(), st.floats(1e-3, 1e3))
def test_order_and_scale_of_the_weights_do_not_matter(some: Voices, spherical: bool, random: object, by: float) -> None:
    other = [(e, w * by) for e, w in some]
    random.shuffle(other)  # type: ignore[attr-defined]
    np.testing.assert_allclose(mixed(other, spherical=spherical), mixed(some, spherical=spherical), atol=1e-4)


@settings(max_examples=40)
@given(voices.filter(all_on_one_side))
def test_on_the_sphere_no_length_is_lost(some: Voices) -> None:
    lengths = np.array([np.linalg.norm(e.astype(np.float64)) for e, _ in some])
    expected = np.average(lengths, weights=[w for _, w in some])
    assert np.linalg.norm(mixed(some, spherical=True)) == pytest.approx(expected, rel=1e-5)


@given(embeddings, st.integers(1, MAX_MIXED_VOICES), st.booleans())
def test_a_voice_with_itself_is_itself(one: Float32Array, times: int, spherical: bool) -> None:
    np.testing.assert_allclose(mix_embeddings([one] * times, [1.0] * times, spherical=spherical), one, rtol=1e-5)


ONE, OTHER = np.eye(2, HIDDEN, dtype=np.float32)


@pytest.mark.parametrize(
    ("some", "message"),
    [
        ([], "0 voices cannot be mixed; use 1 to 8"),
        ([(ONE, 1.0)] * 9, "9 voices cannot be mixed"),
        ([(ONE, -1.0)], "a weight is -1.0; weights are 0 or more"),
        ([(ONE, math.nan)], "a weight is nan"),
        ([(ONE, math.inf)], "a weight is inf"),
        ([(ONE, 0.0), (OTHER, 0.0)], "all weights are 0"),
        ([(ONE, 1.0), (OTHER[:5], 1.0)], "have 5 and 8 values"),
        ([(ONE, 1.0), (OTHER * np.nan, 1.0)], "not finite"),
        ([(ONE, 1.0), (-ONE, 1.0)], "opposites"),
        ([(ONE, 1.0), (OTHER * 0, 1.0)], "no direction"),
    ],
)
def test_what_cannot_be_mixed(some: Voices, message: str) -> None:
    with pytest.raises(InvalidSynthesis, match=message) as error:
        mixed(some, spherical=True)
    assert error.value.field == "mix"


def test_as_many_weights_as_voices() -> None:
    with pytest.raises(InvalidSynthesis, match="2 voices and 1 weights"):
        mix_embeddings([ONE, OTHER], [1.0])


def test_enormous_weights_do_not_overflow() -> None:
    np.testing.assert_allclose(mix_embeddings([ONE, OTHER], [1e308, 1e308]), (ONE + OTHER) / 2)


def test_a_speakers_embedding_is_its_row_of_the_table(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, "custom_voice"))
    table = load_file(tmp_path / "model.safetensors")[CODEC_EMBEDDING]
    for speaker, row in checkpoint.talker.speaker_ids.items():
        np.testing.assert_array_equal(speaker_embedding(checkpoint, speaker), table[row])
