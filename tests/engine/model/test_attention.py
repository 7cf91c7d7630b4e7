"""Attention over pages and frames against the definition, in float64."""

import math

import pytest
import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import TransformerConfig
from sonorant.engine.config import TalkerConfig
from sonorant.engine.model.attention import PagedRows, frame_attention, paged_attention
from sonorant.engine.model.layers import Attention, JoinedAttention, RotaryTable
from sonorant.engine.talker.run.kv_cache import KVCache, Span

HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE = 6, 2, 8, 4
STACK = TransformerConfig(
    hidden_size=24,
    intermediate_size=32,
    num_layers=1,
    num_heads=HEADS,
    num_kv_heads=KV_HEADS,
    head_dim=HEAD_DIM,
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
    attention_bias=True,
)


def by_definition(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of one whole sequence: [positions, heads, head_dim]."""
    k, v = (x.double().repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) / math.sqrt(HEAD_DIM)
    hidden = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


def sequence(length: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(length, heads, HEAD_DIM, generator=g) for heads in (HEADS, KV_HEADS, KV_HEADS))


def new_cache() -> KVCache:
    config = TalkerConfig(page_size=PAGE_SIZE, num_slots=2, max_context=20)
    return KVCache(STACK, config, 12, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("pages", [((3, 4, 5, 6), (8, 9, 10, 11)), ((5, 0, 11, 2), (1, 7, 3, 4))])
def test_prompts_in_pieces_then_single_rows(pages: tuple[tuple[int, ...], ...]) -> None:
    cache = new_cache()
    keys, values = cache.storage[0]
    for slot, own in enumerate(pages):
        cache.assign(slot, own)
    lengths = (14, 9)
    made = [sequence(length, seed) for seed, length in enumerate(lengths)]
    expected = [by_definition(*s) for s in made]
    found = [torch.full_like(e, torch.nan) for e in expected]

    def attend(spans: list[Span], rows: PagedRows) -> None:
        q, k, v = (torch.cat([made[s.slot][i][s.start : s.stop] for s in spans]) for i in range(3))
        parts = paged_attention(q, k, v, keys, values, rows).split([s.stop - s.start for s in spans])
        for span, part in zip(spans, parts, strict=True):
            found[span.slot][span.start : span.stop] = part

    for spans in ([Span(0, 0, 5), Span(1, 0, 3)], [Span(1, 3, 6), Span(0, 5, 11)]):
        slots = torch.tensor([s.slot for s in spans for _ in range(s.start, s.stop)])
        positions = torch.tensor([p for s in spans for p in range(s.start, s.stop)])
        attend(spans, cache.span_rows(spans, slots, positions))
    for step in range(3):
        places = [(0, 11 + step), (1, 6 + step)]
        slots, positions = torch.tensor(places).unbind(1)
        attend([Span(s, p, p + 1) for s, p in places], cache.single_rows(places, slots, positions))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)


def test_padding_rows_disturb_nobody() -> None:
    cache = new_cache()
    cache.assign(0, (2, 3))
    q, k, v = sequence(4, 0)
    before = cache.storage.clone()
    slots, positions = torch.tensor([0, 2, 2, 2]), torch.tensor([0, 0, 0, 0])
    out = paged_attention(q, k, v, *cache.storage[0], cache.single_rows([(0, 0)], slots, positions))
    assert out.isfinite().all()
    changed = (cache.storage != before).any(-1).any(-1)[0, 0].nonzero().flatten().tolist()
    assert changed == [2 * PAGE_SIZE, 12 * PAGE_SIZE]  # the row's own position, and the padding page


def test_attention_within_a_frame() -> None:
    streams, books = 3, 5
    made = [sequence(books, seed) for seed in range(streams)]
    cache = torch.zeros(2, streams, books, KV_HEADS, HEAD_DIM)
    parts = []
    for start, stop in ((0, 2), (2, 3), (3, 4), (4, 5)):
        q, k, v = (torch.stack([s[i][start:stop] for s in made]).flatten(0, 1) for i in range(3))
        parts.append(frame_attention(q, k, v, *cache, start).view(streams, stop - start, HEADS, HEAD_DIM))
    found = torch.cat(parts, 1)
    for i, s in enumerate(made):
        torch.testing.assert_close(found[i].double(), by_definition(*s), atol=1e-5, rtol=1e-5)


def test_joined_projections_compute_the_same() -> None:
    plain = Attention(STACK).requires_grad_(False)
    for parameter in plain.parameters():
        parameter.normal_(generator=torch.Generator().manual_seed(parameter.numel()))
    rotation = RotaryTable(STACK, 10, torch.device("cpu"), torch.float32).at(torch.tensor([3, 1, 4, 9]))
    x = torch.randn(4, STACK.hidden_size, generator=torch.Generator().manual_seed(1))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q + k.repeat(1, 3, 1) * v.repeat(1, 3, 1)

    torch.testing.assert_close(JoinedAttention(plain)(x, rotation, attend), plain(x, rotation, attend))
