"""The sampler against the logits processors of transformers, which the official package samples with."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sonorant.engine.model.sampling import (
    Sampling,
    choose,
    draw,
    is_drawable,
    keep_top_k,
    keep_top_p,
    penalize_repetition,
    uniforms,
)

NUM_ROWS, NUM_IDS = 1000, 80


@pytest.fixture
def logits() -> torch.Tensor:
    """Rounded to halves, so that there are many ties."""
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(NUM_ROWS, NUM_IDS, generator=generator) * 6).round() / 2


def random_parameters() -> Sampling:
    rng = np.random.default_rng(1)
    return Sampling(
        do_sample=torch.ones(NUM_ROWS, dtype=torch.bool),
        temperature=torch.from_numpy(rng.uniform(0.2, 2.0, NUM_ROWS).astype(np.float32)),
        top_k=torch.from_numpy(rng.choice([0, 1, 2, 5, 50, NUM_IDS, 500], NUM_ROWS)),
        top_p=torch.from_numpy(rng.choice([1.0, 0.95, 0.5, 0.1, 1e-6], NUM_ROWS).astype(np.float32)),
    )


def official_scores(scores: torch.Tensor, p: Sampling, row: int) -> torch.Tensor:
    """Temperature, top-k, top-p as GenerationMixin chains them."""
    from transformers.generation import logits_process as official

    ids = torch.zeros(1, 0, dtype=torch.int64)
    scores = official.TemperatureLogitsWarper(float(p.temperature[row]))(ids, scores)
    if p.top_k[row] > 0:
        scores = official.TopKLogitsWarper(int(p.top_k[row]))(ids, scores)
    if p.top_p[row] < 1:
        scores = official.TopPLogitsWarper(float(p.top_p[row]))(ids, scores)
    return scores


def test_the_same_ids_are_left_with_the_same_scores(logits: torch.Tensor) -> None:
    p = random_parameters()
    scores, ids = (logits / p.temperature[:, None]).sort(-1)
    scores = keep_top_p(keep_top_k(scores, p.top_k), p.top_p)
    ours = torch.empty_like(scores).scatter_(-1, ids, scores)
    for row in range(NUM_ROWS):
        official = official_scores(logits[row : row + 1], p, row)[0]
        # Which of several equal scores top-p drops is up to the sort.
        assert torch.equal(ours[row].sort().values, official.sort().values), row
        distinct = torch.isfinite(ours[row]) != torch.isfinite(official)
        assert len(logits[row][distinct].unique()) <= 1, row


def test_repetition_penalty(logits: torch.Tensor) -> None:
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    rng = np.random.default_rng(2)
    penalty = rng.uniform(0.5, 2.0, NUM_ROWS)
    history = torch.from_numpy(rng.integers(0, NUM_IDS, (NUM_ROWS, 30)))
    seen = torch.zeros(NUM_ROWS, NUM_IDS, dtype=torch.bool).scatter_(1, history, True)
    ours = penalize_repetition(logits, seen, torch.from_numpy(penalty).float())
    for row in range(NUM_ROWS):
        processor = RepetitionPenaltyLogitsProcessor(float(np.float32(penalty[row])))
        assert torch.equal(ours[row], processor(history[row : row + 1], logits[row : row + 1].clone())[0]), row


def test_draws_follow_the_distribution() -> None:
    """All of 65,536 evenly spaced numbers: each id comes up as often as it is likely, to one count."""
    count = 1 << 16
    logits = torch.tensor([[0.3, -torch.inf, 2.0, 1.0, -1.0, 1.0]])
    ones = torch.ones(count)
    p = Sampling(ones.bool(), ones * 0.7, torch.full((count,), 4), ones)
    drawn = draw(logits.expand(count, -1), p, torch.arange(count) / count)
    kept = official_scores(logits, p, 0).softmax(-1)[0]
    assert (drawn.bincount(minlength=6) - kept * count).abs().max() <= 2
    assert not drawn.eq(1).any()


def test_rows_that_do_not_sample_take_the_likeliest(logits: torch.Tensor) -> None:
    p = random_parameters()
    do_sample = torch.arange(NUM_ROWS) % 2 == 0
    mixed = Sampling(do_sample, p.temperature, p.top_k, p.top_p)
    uniform = uniforms(torch.arange(NUM_ROWS), torch.zeros(NUM_ROWS, dtype=torch.int64), 1)[:, 0]
    chosen = choose(logits, mixed, uniform)
    assert torch.equal(chosen[1::2], logits[1::2].argmax(-1))
    assert torch.equal(chosen[::2], choose(logits, p, uniform)[::2])


def test_top_k_of_one_is_the_likeliest() -> None:
    logits = torch.randn(NUM_ROWS, NUM_IDS, generator=torch.Generator().manual_seed(3))
    ones = torch.ones(NUM_ROWS)
    p = Sampling(ones.bool(), ones, ones.long(), ones)
    for value in (0.0, 1 - 2**-24):
        assert torch.equal(draw(logits, p, ones * value), logits.argmax(-1))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_scores_that_are_no_numbers_are_told_and_give_an_id_nevertheless(value: float) -> None:
    logits = torch.zeros(3, NUM_IDS)
    logits[1] = value
    ones = torch.ones(3)
    p = Sampling(ones.bool(), ones, ones.long() * 50, ones)
    assert is_drawable(logits).tolist() == [True, False, True]
    greedy = replace(p, do_sample=~p.do_sample)
    for drawn in (choose(logits, each, ones * (1 - 2**-24)) for each in (p, greedy)):
        assert ((drawn >= 0) & (drawn < NUM_IDS)).all()


def test_uniforms_are_spread_evenly_and_belong_to_their_counters() -> None:
    seeds, frames = torch.meshgrid(torch.tensor([0, 1, 2, 2**32 - 1]), torch.arange(2000), indexing="ij")
    u = uniforms(seeds.flatten(), frames.flatten(), 16)
    assert u.shape == (8000, 16)
    assert u.min() >= 0
    assert u.max() < 1
    counts = u.flatten().mul(64).long().bincount(minlength=64).double()
    expected = u.numel() / 64
    assert ((counts - expected) ** 2 / expected).sum() < 63 + 5 * (2 * 63) ** 0.5  # chi square
    for other in (u[1:], u[:, 1:]):  # neighbours in frame and codebook
        both = torch.stack([u[: len(other), : other.shape[1]].flatten(), other.flatten()])
        assert abs(torch.corrcoef(both)[0, 1]) < 0.01
    assert torch.equal(uniforms(torch.tensor([2]), torch.tensor([77]), 4)[0], u[2 * 2000 + 77, :4])


def test_the_generator_is_splitmix64() -> None:
    def mixed(x: int) -> int:
        mask = 2**64 - 1
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
        return x ^ x >> 31

    seed, frame, book = 4_000_000_000, 8191, 15
    expected = (mixed(seed << 32 | frame << 8 | book) >> 40) * 2.0**-24
    assert uniforms(torch.tensor([seed]), torch.tensor([frame]), 16)[0, book].item() == expected
