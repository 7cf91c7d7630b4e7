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

    do_sample: Tensor  # [rows], bool; False: the most likely id
    temperature: Tensor  # [rows]
    top_k: Tensor  # [rows], int64; 0 = off
    top_p: Tensor  # [rows]; 1 = off

    def at(self, rows: Tensor) -> "Sampling":
        return Sampling(self.do_sample[rows], self.temperature[rows], self.top_k[rows], self.top_p[rows])

    def set(self, row: int, values: Tensor) -> None:
        """The four numbers of a row, in order."""
        for field, value in zip((self.do_sample, self.temperature, self.top_k, self.top_p), values, strict=True):
            field[row] = value


def penalize_repetition(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Each id seen before once: a positive logit divided by the penalty, a negative one multiplied.

    logits [rows, ids] float32, seen [rows, ids] bool, penalty [rows].
    """
    penalty = penalty[:, None]
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def is_drawable(scores: Tensor) -> Tensor:
    """Whether there is something to draw from, [rows]: the highest of the scores [rows, ids] is a finite number."""
    return scores.amax(-1).isfinite()


def choose(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """Ids [rows] from logits [rows, ids] float32; `uniform` [rows] in [0, 1)."""
    return torch.where(sampling.do_sample, draw(logits, sampling, uniform), logits.argmax(-1))


def draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """Temperature, top-k, top-p, then the inverse of the cumulative distribution, in the order of ids, at `uniform`."""
    scores, ids = (logits / sampling.temperature[:, None]).sort(dim=-1, stable=True)  # ascending
    scores = keep_top_p(keep_top_k(scores, sampling.top_k), sampling.top_p)
    cumulative = torch.empty_like(scores).scatter_(-1, ids, scores).softmax(-1).cumsum(-1)
    # The total is a little off 1 by rounding. A place with no probability is never taken: it equals the one before.
    total = cumulative[:, -1:]
    target = torch.minimum(uniform[:, None] * total, total.nextafter(torch.zeros_like(total)))
    # Scores that are no numbers have no place either: any id will do then, as long as it is one. See `is_drawable`.
    return torch.searchsorted(cumulative, target, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)


def keep_top_k(scores: Tensor, top_k: Tensor) -> Tensor:
    """-inf below the k-th largest of scores sorted ascending; those equal to it stay."""
    size = scores.shape[-1]
    k = torch.where(top_k > 0, top_k, size).clamp(max=size)
    return scores.masked_fill(scores < scores.gather(-1, size - k[:, None]), -torch.inf)


def keep_top_p(scores: Tensor, top_p: Tensor) -> Tensor:
    """-inf for the least likely whose probabilities sum to at most 1 - top_p; scores are sorted ascending."""
    removed = scores.softmax(-1).cumsum(-1) <= 1 - top_p[:, None]
    removed &= top_p[:, None] < 1
    removed[:, -1] = False
    return scores.masked_fill(removed, -torch.inf)


def uniforms(seed: Tensor, frame: Tensor, num_codebooks: int) -> Tensor:
    """[rows, codebooks] in [0, 1), from seed [rows] (32 bits) and frame [rows] (24 bits), both int64.

    The three counters side by side in 64 bits, mixed by the finalizer of splitmix64.
    """
    codebook = torch.arange(num_codebooks, device=seed.device)
    x = (seed << 32 | frame << 8)[:, None] | codebook
    x = (x ^ _shift_right(x, 30)) * -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
    x = (x ^ _shift_right(x, 27)) * -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
    return _shift_right(x ^ _shift_right(x, 31), 40).float() * 2.0**-24


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift of int64, whose own shift keeps the sign."""
    return x >> bits & (1 << 64 - bits) - 1
