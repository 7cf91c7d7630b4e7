"""Batched sampling, one set of parameters per row, in the order of the official package's logits processors.

Everything is a device tensor of fixed shape and nothing waits for the host. Random numbers are a pure function of
(seed, frame, codebook), so a row's draw depends on nothing else in its batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """How each row draws from its logits."""

    do_sample: Tensor  # [rows], bool; False: take the most likely id
    temperature: Tensor  # [rows]
    top_k: Tensor  # [rows], int64; 0 = off
    top_p: Tensor  # [rows]; 1 = off

    @property
    def fields(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.do_sample, self.temperature, self.top_k, self.top_p

    def at(self, rows: Tensor) -> "Sampling":
        return Sampling(self.do_sample[rows], self.temperature[rows], self.top_k[rows], self.top_p[rows])

    def set(self, row: int, values: Tensor) -> None:
        """Set the four numbers of a row, in the order of the fields."""
        for field, value in zip(self.fields, values, strict=True):
            field[row] = value


def penalize_repetition(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Divide positive logits of ids seen before by the penalty, and multiply negative ones, once however often seen.

    logits [rows, ids] float32, seen [rows, ids] bool, penalty [rows].
    """
    penalty = penalty[:, None]
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def is_drawable(scores: Tensor) -> Tensor:
    """Whether each row of scores [rows, ids] can be drawn from, [rows]: its highest score must be finite."""
    return scores.amax(-1).isfinite()


def choose(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """Ids [rows] from logits [rows, ids] float32; `uniform` [rows] in [0, 1)."""
    return torch.where(sampling.do_sample, draw(logits, sampling, uniform), logits.argmax(-1))


def draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """Apply temperature, top-k and top-p; then take the id at `uniform` in the cumulative distribution over the ids."""
    scores, ids = (logits / sampling.temperature[:, None]).sort(dim=-1, stable=True)  # ascending
    scores = keep_top_p(keep_top_k(scores, sampling.top_k), sampling.top_p)
    cumulative = torch.empty_like(scores).scatter_(-1, ids, scores).softmax(-1).cumsum(-1)
    # Rounding makes the total differ a little from 1. An id without probability is never taken: its cumulative value
    # equals that of the id before.
    total = cumulative[:, -1:]
    target = torch.minimum(uniform[:, None] * total, total.nextafter(torch.zeros_like(total)))
    # With NaN among the scores the search may end behind the last id: clamp to any valid id. See `is_drawable`.
    return torch.searchsorted(cumulative, target, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)


def keep_top_k(scores: Tensor, top_k: Tensor) -> Tensor:
    """Set the scores below the k-th largest to -inf, those equal to it stay; scores are sorted ascending."""
    size = scores.shape[-1]
    k = torch.where(top_k > 0, top_k, size).clamp(max=size)
    return scores.masked_fill(scores < scores.gather(-1, size - k[:, None]), -torch.inf)


def keep_top_p(scores: Tensor, top_p: Tensor) -> Tensor:
    """Set the least likely scores, whose probabilities sum to at most 1 - top_p, to -inf; scores ascend."""
    removed = scores.softmax(-1).cumsum(-1) <= 1 - top_p[:, None]
    removed &= top_p[:, None] < 1
    removed[:, -1] = False
    return scores.masked_fill(removed, -torch.inf)


def uniforms(seed: Tensor, frame: Tensor, num_codebooks: int) -> Tensor:
    """Random numbers [rows, codebooks] in [0, 1), from seed [rows] (32 bits) and frame [rows] (24 bits), both int64.

    Seed, frame and codebook stand side by side in 64 bits, which the finalizer of splitmix64 mixes.
    """
    codebook = torch.arange(num_codebooks, device=seed.device)
    x = (seed << 32 | frame << 8)[:, None] | codebook
    x = (x ^ _shift_right(x, 30)) * -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
    x = (x ^ _shift_right(x, 27)) * -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
    return _shift_right(x ^ _shift_right(x, 31), 40).float() * 2.0**-24


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift int64 right and fill with zeros; `>>` alone would repeat the sign."""
    return x >> bits & (1 << 64 - bits) - 1
