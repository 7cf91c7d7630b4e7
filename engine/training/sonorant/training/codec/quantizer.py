"""Split residual vector quantization trained by moving averages: one semantic book, the others a residual chain.

Both groups quantize projections of the same embedding, as the published codec does.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DEAD_SHARE = 0.03  # of the mean usage: an entry that is used less is replaced by a vector of the batch
K_MEANS_STEPS = 12


class BookGroup(nn.Module):
    """A residual chain of books, with its input and output projections."""

    entries: Tensor  # [books, codes, vector_dim]
    sums: Tensor
    usage: Tensor  # [books, codes]

    def __init__(self, num_books: int, num_codes: int, vector_dim: int, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.input_proj = nn.Conv1d(in_dim, vector_dim, 1, bias=False)
        self.output_proj = nn.Conv1d(vector_dim, out_dim, 1, bias=False)
        self.register_buffer("entries", torch.randn(num_books, num_codes, vector_dim) * 0.1)
        self.register_buffer("sums", torch.zeros(num_books, num_codes, vector_dim))
        self.register_buffer("usage", torch.ones(num_books, num_codes))

    def project(self, x: Tensor) -> Tensor:
        """x [crops, in_dim, frames] -> [crops, frames, vector_dim], in float32."""
        with torch.autocast(x.device.type, enabled=False):
            projected: Tensor = self.input_proj(x.float())
        return projected.transpose(1, 2)

    def quantize(self, vectors: Tensor, *, decay: float | None, revive: bool) -> tuple[Tensor, Tensor]:
        """Return vectors quantized with a straight-through gradient, and the commitment loss.

        `decay`: of the moving averages by which the books learn; None: they do not. `revive`: replace dead entries.
        """
        remainder, quantized, commitment = vectors, torch.zeros_like(vectors), vectors.new_zeros(())
        for book in range(len(self.entries)):
            chosen = self._nearest(book, remainder.detach(), decay, revive)
            commitment = commitment + (remainder - chosen).square().mean()
            remainder, quantized = remainder - chosen, quantized + chosen
        return vectors + (quantized - vectors).detach(), commitment / len(self.entries)

    @torch.no_grad()
    def start(self, vectors: Tensor) -> None:
        """Initialize the entries by k-means on vectors [n, vector_dim], book after book."""
        remainder = vectors
        for book in range(len(self.entries)):
            num_codes = len(self.entries[book])
            entries = remainder[torch.randint(len(remainder), (num_codes,), device=vectors.device)]
            for _ in range(K_MEANS_STEPS):
                counts, sums = _tally(_codes(remainder, entries), remainder, num_codes)
                somewhere = remainder[torch.randint(len(remainder), (num_codes,), device=vectors.device)]
                entries = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], somewhere)
            self.entries[book] = entries
            self.usage[book] = len(remainder) / num_codes
            self.sums[book] = entries * self.usage[book][:, None]
            remainder = remainder - entries[_codes(remainder, entries)]

    @torch.no_grad()
    def _nearest(self, book: int, vectors: Tensor, decay: float | None, revive: bool) -> Tensor:
        flat, entries = vectors.flatten(0, -2), self.entries[book]
        codes = _codes(flat, entries)
        chosen = F.embedding(codes, entries).view_as(vectors)
        if decay is not None:
            counts, sums = _tally(codes, flat, len(entries))
            self.usage[book].lerp_(counts, 1 - decay)
            self.sums[book].lerp_(sums, 1 - decay)
            if revive:
                mean = len(flat) / len(entries)
                dead = self.usage[book] < DEAD_SHARE * mean
                fresh = flat[torch.randint(len(flat), (len(entries),), device=flat.device)] * (mean / 2)
                self.usage[book] = self.usage[book].masked_fill(dead, mean / 2)
                self.sums[book] = torch.where(dead[:, None], fresh, self.sums[book])
            self.entries[book] = self.sums[book] / self.usage[book].clamp(min=1e-5)[:, None]
        return chosen


def _codes(vectors: Tensor, entries: Tensor) -> Tensor:
    return (entries.square().sum(-1) - 2 * (vectors @ entries.T)).argmin(-1)


def _tally(codes: Tensor, vectors: Tensor, num_codes: int) -> tuple[Tensor, Tensor]:
    counts = torch.zeros(num_codes, device=vectors.device).index_add_(
        0, codes, torch.ones_like(codes, dtype=torch.float)
    )
    sums = torch.zeros(num_codes, vectors.shape[1], device=vectors.device).index_add_(0, codes, vectors)
    return counts, sums
