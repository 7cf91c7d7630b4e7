"""Each kernel against its plain twin: on a GPU where there is one, else through Triton's interpreter."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from sonorant.engine.checkpoint.config import TransformerConfig
from sonorant.engine.config import TalkerConfig
from sonorant.engine.model.attention import PagedRows
from sonorant.engine.model.attention import frame_attention as plain_frame_attention
from sonorant.engine.model.attention import paged_attention as plain_attention
from sonorant.engine.model.layers import Attention, JoinedAttention, RMSNorm, RotaryTable
from sonorant.engine.model.sampling import Sampling, choose, is_drawable, penalize_repetition, uniforms
from sonorant.engine.model.talker import sum_frame
from sonorant.engine.talker.run.kv_cache import KVCache
from sonorant.engine.talker.run.slot_state import SlotArrays
from tests.fakes import published_checkpoint

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

from sonorant.engine.kernels.gemm.gemv import Norm
from sonorant.engine.kernels.gemm.linear import linear
from sonorant.engine.kernels.norm import add_rms_norm
from sonorant.engine.kernels.swiglu import swiglu
from sonorant.engine.kernels.talker import attention
from sonorant.engine.kernels.talker.attention import HeadNorm, RowPositions, paged_attention
from sonorant.engine.kernels.talker.embedding import PromptItems, keep_frames, row_inputs, sum_embeddings
from sonorant.engine.kernels.talker.frame_attention import frame_attention
from sonorant.engine.kernels.talker.sampling import Draws, FirstBook
from sonorant.engine.kernels.talker.sampling import choose as fused_choose
from sonorant.engine.kernels.talker.slots import begin_slots, slot_columns

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# The interpreter rounds to bfloat16 by cutting off.
DTYPES = (torch.float32, torch.bfloat16) if DEVICE.type == "cuda" else (torch.float32,)
# (query heads, key-value heads, head size): like the published shapes, like the built-in voice, one that must be padded
SHAPES = ((4, 2, 128), (2, 2, 64), (4, 2, 8))
PAGE = 16


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


def assert_close(ours: torch.Tensor, twin: torch.Tensor) -> None:
    """To a few units in the last place of the larger values."""
    assert ours.dtype == twin.dtype
    step = 2.0**-7 if ours.dtype == torch.bfloat16 else 2.0**-18
    torch.testing.assert_close(ours, twin, rtol=2 * step, atol=step)


def assert_near(ours: torch.Tensor, twin: torch.Tensor) -> None:
    """Over all: single values may be of large summands that nearly cancel."""
    assert ours.dtype == twin.dtype
    error = (ours.double() - twin.double()).norm() / twin.double().norm()
    assert error < (1e-2 if ours.dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [24, 256, 2048])
@pytest.mark.parametrize("has_delta", [False, True])
def test_add_rms_norm(dtype: torch.dtype, size: int, has_delta: bool) -> None:
    norm = RMSNorm(size, 1e-6)
    norm.weight = torch.nn.Parameter(randn(size, dtype=dtype), requires_grad=False)
    x = randn(5, size, dtype=dtype)
    delta = randn(5, size, dtype=dtype) if has_delta else None
    total, out = add_rms_norm(x, delta, norm.weight, norm.eps)
    expected = x if delta is None else x + delta
    assert torch.equal(total, expected)
    assert_close(out, norm(expected))


def plain_product(x: torch.Tensor, weight: torch.Tensor, norm: RMSNorm | None, is_swiglu: bool) -> torch.Tensor:
    out = F.linear(x if norm is None else norm(x), weight)
    if is_swiglu:
        gate, up = out.chunk(2, 1)
        out = F.silu(gate) * up
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_rows, size_in", [(1, 40), (1, 2500), (2, 40), (4, 2500)])
@pytest.mark.parametrize("is_normed, is_swiglu", [(False, False), (True, False), (True, True)])
def test_products(dtype: torch.dtype, num_rows: int, size_in: int, is_normed: bool, is_swiglu: bool) -> None:
    x, weight = randn(num_rows, size_in, dtype=dtype), randn(60, size_in, dtype=dtype) / size_in**0.5
    norm = None
    if is_normed:
        norm = RMSNorm(size_in, 1e-6)
        norm.weight = torch.nn.Parameter(randn(size_in, dtype=dtype), requires_grad=False)
    fused = None if norm is None else Norm(norm.weight, norm.eps)
    expected = plain_product(x, weight, norm, is_swiglu)
    assert_near(linear(x, weight, norm=fused, is_swiglu=is_swiglu), expected)
    residual = randn(*expected.shape, dtype=dtype)
    sum_of_both = expected + residual
    added = linear(x, weight, norm=fused, is_swiglu=is_swiglu, residual=residual)
    assert_near(added, sum_of_both)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (16, 8, 128)])  # the last has a kernel of its own on a GPU
def test_frame_attention(shape: tuple[int, int, int], dtype: torch.dtype, config: TransformerConfig) -> None:
    case = attention_case(shape, dtype, config)
    norm = case.attention.qk_norm
    head_norm = HeadNorm(norm.weight, norm.eps, case.rotary.cos.flatten(1), case.rotary.sin.flatten(1))
    keys, values = randn(2, 3, 11, shape[1], shape[2], dtype=dtype)
    twin_keys, twin_values = keys.clone(), values.clone()
    for position in (1, 2, 10):
        x = randn(6 if position == 1 else 3, 48, dtype=dtype)
        ours = frame_attention(case.attention.qkv_proj(x), head_norm, keys, values, position=position)
        attended = []

        def attend(
            q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: int = position, attended: list = attended
        ) -> torch.Tensor:
            at = 0 if position == 1 else position
            attended.append(plain_frame_attention(q, k, v, keys=twin_keys, values=twin_values, position=at))
            return attended[-1]

        positions = torch.tensor([0, 1] * 3 if position == 1 else [position] * 3, device=DEVICE)
        rotation = case.rotary.at(positions)
        rotation = dataclasses.replace(rotation, cos=rotation.cos.to(dtype), sin=rotation.sin.to(dtype))
        case.attention(x, rotation, attend)
        assert_near(ours, attended[0].flatten(1))
        assert_near(keys, twin_keys)
        assert_near(values, twin_values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu(dtype: torch.dtype) -> None:
    gate_up = randn(3, 2 * 1100, dtype=dtype)
    gate, up = gate_up.chunk(2, 1)
    assert_close(swiglu(gate_up), F.silu(gate) * up)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_embeddings(dtype: torch.dtype) -> None:
    tables = [randn(n, 600, dtype=dtype) for n in (40, 30, 30)]
    codes = torch.stack([torch.randint(0, len(t), (7,), device=DEVICE) for t in tables], 1)
    starts = torch.tensor([0, 40, 70], device=DEVICE)
    expected = sum_frame([table[ids] for table, ids in zip(tables, codes.unbind(1), strict=True)])
    assert_close(sum_embeddings(codes, torch.cat(tables), starts), expected)
    last_frame = randn(20, 600, dtype=dtype)
    slots = torch.randperm(20)[:7].to(DEVICE)
    kept = last_frame.index_copy(0, slots, expected)
    broken = torch.arange(7, device=DEVICE) == 3
    frames = keep_frames(codes, broken, torch.cat(tables), starts, slots, last_frame, -2)
    assert_close(last_frame, kept)
    codes[3, 0] = -2
    assert torch.equal(frames, codes.to(torch.int16))


@pytest.mark.parametrize("dtype", DTYPES)
def test_row_inputs(dtype: torch.dtype) -> None:
    text_table, codec_table, last_frame, others = (randn(n, 600, dtype=dtype) for n in (30, 20, 6, 9))
    slots, text_ids, items = (
        torch.tensor(ids, device=DEVICE) for ids in ((5, 0, 2, 2), (3, -1, 29, 0), (4, -1, -9, 7))
    )
    text = text_table[text_ids].masked_fill((text_ids < 0)[:, None], 0)
    assert_close(row_inputs(slots, text_ids, text_table, last_frame), last_frame[slots] + text)
    decodes = torch.tensor([0, 0, 0, 1], device=DEVICE)
    codec = codec_table[items].masked_fill((items < 0)[:, None], 0) + others[:4]
    codec[3] = last_frame[2]
    prompts = PromptItems(decodes, items, codec_table, others)
    assert_close(row_inputs(slots, text_ids, text_table, last_frame, prompts), codec + text)


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    attention: JoinedAttention
    rotary: RotaryTable
    dtype: torch.dtype
    table: torch.Tensor  # [slots, pages]
    pool: torch.Tensor  # [2, positions of the pool, kv_heads, head_dim]

    def ours(self, x: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, are_single: bool) -> torch.Tensor:
        norm = self.attention.qk_norm
        head_norm = HeadNorm(norm.weight, norm.eps, self.rotary.cos.flatten(1), self.rotary.sin.flatten(1))
        keys, values = self.pool
        places = RowPositions(slots, positions, self.table, PAGE, are_single)
        return paged_attention(self.attention.qkv_proj(x), head_norm, keys, values, places=places)

    def twin(self, x: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Without the output projection, and with every row a tile of its own."""
        places = self.table[slots, positions // PAGE] * PAGE + positions % PAGE
        seen = []
        for slot, position in zip(slots.tolist(), positions.tolist(), strict=True):
            every = torch.arange(position + 1, device=DEVICE)
            seen.append(self.table[slot, every // PAGE] * PAGE + every % PAGE)
        keys, values = self.pool
        attended = []

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            attended.append(plain_attention(q, k, v, keys, values, PagedRows(places, seen, None, None)))
            return attended[-1]

        rotation = self.rotary.at(positions)
        rotation = dataclasses.replace(rotation, cos=rotation.cos.to(self.dtype), sin=rotation.sin.to(self.dtype))
        self.attention(x, rotation, attend)
        return attended[0].flatten(1)


def attention_case(shape: tuple[int, int, int], dtype: torch.dtype, config: TransformerConfig) -> AttentionCase:
    heads, kv_heads, dim = shape
    c = dataclasses.replace(config, num_heads=heads, num_kv_heads=kv_heads, head_dim=dim, hidden_size=48)
    plain = Attention(c).to(DEVICE)
    for parameter in plain.parameters():
        parameter.data = randn(*parameter.shape) / (7 if parameter.ndim == 2 else 1)
    table = torch.randperm(4 * 7, device=DEVICE).view(4, 7)
    pool = randn(2, 4 * 7 * PAGE, kv_heads, dim, dtype=dtype)
    rotary = RotaryTable(c, 7 * PAGE, DEVICE, torch.float32)
    return AttentionCase(JoinedAttention(plain.to(dtype)), rotary, dtype, table, pool)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TransformerConfig:
    from sonorant.engine.checkpoint.config import load_checkpoint
    from tests.tiny_checkpoint import write_tiny_checkpoint

    return load_checkpoint(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))).talker.stack


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("are_single", [True, False])
def test_paged_attention(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    are_single: bool,
    config: TransformerConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows alone in their slots, or several of one slot in one batch; the pool afterwards must be the same too."""
    monkeypatch.setattr(attention, "WARPS_WANTED", 256)  # about four splits
    case = attention_case(shape, dtype, config)
    rows = [(0, 0), (1, 100), (2, 63), (3, 64)] if are_single else [(0, 0), (0, 1), (1, 79), (1, 80), (2, 33)]
    slots, positions = torch.tensor(list(zip(*rows, strict=True)), device=DEVICE)
    x = randn(len(rows), 48, dtype=dtype)
    before = case.pool.clone()
    expected = case.twin(x, slots, positions)
    expected_pool = case.pool.clone()
    case.pool.copy_(before)
    out = case.ours(x, slots, positions, are_single)
    assert_close(case.pool, expected_pool)
    assert_close(out, expected)


@torch.inference_mode()
def test_many_rows_are_not_split(config: TransformerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "WARPS_WANTED", 1)
    case = attention_case(SHAPES[-1], torch.float32, config)
    slots = torch.arange(4, device=DEVICE)
    positions = slots * 30
    x = randn(4, 48)
    assert_close(case.ours(x, slots, positions, True), case.twin(x, slots, positions))


def sampling(num_rows: int) -> Sampling:
    pick = torch.Generator().manual_seed(1)
    return Sampling(
        do_sample=(torch.rand(num_rows, generator=pick) < 0.9).to(DEVICE),
        temperature=(torch.rand(num_rows, generator=pick) + 0.3).to(DEVICE),
        top_k=torch.tensor([0, 1, 2, 50, 5000])[torch.randint(0, 5, (num_rows,), generator=pick)].to(DEVICE),
        top_p=torch.tensor([1.0, 0.9, 0.5, 1e-6])[torch.randint(0, 4, (num_rows,), generator=pick)].to(DEVICE),
    )


def draws(p: Sampling, seed: torch.Tensor | None = None) -> Draws:
    """Row i draws as slot i, frame 0."""
    rows = torch.arange(len(p.top_k), device=DEVICE)
    return Draws(rows, rows * 0, rows if seed is None else seed, p.do_sample, p.temperature, p.top_k, p.top_p)


def scores_to_draw_from(num_ids: int) -> torch.Tensor:
    scores = randn(2000 if DEVICE.type == "cuda" else 20, num_ids) * 3
    scores[: len(scores) // 2] = scores[: len(scores) // 2].round()  # which has ties
    scores[:, 7] = -torch.inf
    return scores


@pytest.mark.slow
@pytest.mark.parametrize("num_ids", [80, 512])
def test_choose(num_ids: int) -> None:
    logits = scores_to_draw_from(num_ids)
    p = draws(sampling(len(logits)))
    codes = torch.full((len(logits), 3), -1, device=DEVICE)
    table = randn(num_ids, 40)
    embedded = fused_choose(logits, p, codes, 1, table=table)
    twin = choose(logits, sampling(len(logits)), uniforms(p.seed, p.frames, 3)[:, 1])
    # A number that falls on a border between two ids may go to either, by rounding.
    assert (codes[:, 1] != twin).sum() <= 1
    assert (codes[:, 1] != 7).all()
    assert torch.equal(embedded, table[codes[:, 1]])
    assert (codes[:, ::2] == -1).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, at scores that are no numbers
def test_choose_the_first_code() -> None:
    logits = scores_to_draw_from(80)
    logits[2] = torch.nan
    logits[3, 5] = torch.nan
    logits[4] = -torch.inf
    rows = torch.arange(len(logits), device=DEVICE)
    p = dataclasses.replace(draws(sampling(len(logits))), slots=rows.flip(0))
    by_slot = sampling(len(logits)).at(p.slots)
    seen = torch.rand(len(logits), 80, device=DEVICE) < 0.5
    penalty = 1 + torch.rand(len(logits), device=DEVICE)
    banned = torch.arange(80, device=DEVICE) % 11 == 0
    codes, broken = rows.new_zeros(len(logits), 2), torch.zeros_like(rows, dtype=torch.bool)
    first = FirstBook(seen.clone(), penalty, banned, end_id=9, may_end=rows % 2, broken=broken)
    fused_choose(logits, p, codes, 0, first=first)
    scores = penalize_repetition(logits, seen[p.slots], penalty[p.slots]).masked_fill(banned, -torch.inf)
    scores[::2, 9] = -torch.inf
    twin = choose(scores, by_slot, uniforms(p.seed[p.slots], p.frames, 1)[:, 0])
    drawable = is_drawable(scores)
    assert torch.equal(broken, ~drawable)
    assert (~drawable).nonzero().flatten().tolist() == [2, 3, 4]
    assert ((codes[:, 0] != twin) & drawable).sum() <= 1
    seen[p.slots, codes[:, 0]] = True
    assert torch.equal(first.seen, seen)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, at such numbers
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_choose_gives_an_id_where_scores_are_no_numbers(value: float) -> None:
    ones = torch.ones(2, device=DEVICE)
    p = draws(Sampling(torch.arange(2, device=DEVICE) == 1, ones, ones.long() * 50, ones))
    codes = ones.long()[:, None] * -1
    fused_choose(torch.full((2, 80), value, device=DEVICE), p, codes, 0)
    assert ((codes >= 0) & (codes < 80)).all()


def test_choose_takes_the_last_id_at_the_end_of_the_range() -> None:
    ones = torch.ones(1, device=DEVICE)
    seed = ones.long() * 3797775  # a seed that gives the highest number there is
    assert uniforms(seed, seed * 0, 1).item() == 1 - 2**-24
    logits = torch.zeros(1, 80, device=DEVICE)
    logits[:, 70:] = -torch.inf
    for top_p in (ones, ones * 0.999):
        codes = seed[:, None].clone()
        fused_choose(logits, draws(Sampling(ones.bool(), ones, ones.long() * 80, top_p), seed), codes, 0)
        assert codes.item() == 69


def test_begin_slots() -> None:
    """Slots set up by one launch are as those that are set up one by one."""
    checkpoint = published_checkpoint()
    device, num_slots = torch.device(DEVICE), 5

    def arrays() -> tuple[KVCache, SlotArrays]:
        small = dataclasses.replace(checkpoint.talker.stack, num_layers=1, num_kv_heads=1, head_dim=2)
        slots = SlotArrays(num_slots, checkpoint, device, torch.float32)
        slots.seen.fill_(True)
        config = TalkerConfig(page_size=4, num_slots=num_slots, max_context=24)
        cache = KVCache(small, config, 9, device, torch.float32)
        cache.table.fill_(3)
        return cache, slots

    (cache, slots), (plain_cache, plain) = arrays(), arrays()
    params = [
        dataclasses.replace(checkpoint.default_sampling, seed=2**32 - 1, temperature=0.37, top_p=0.93, top_k=7),
        dataclasses.replace(checkpoint.default_sampling, do_sample=False, subtalker_top_k=3, repetition_penalty=1.3),
        dataclasses.replace(checkpoint.default_sampling, subtalker_do_sample=False, subtalker_temperature=0.6),
    ]
    begun, pages = [4, 0, 2], [(7, 8), (1,), (0, 2, 4, 5, 6, 8)]
    columns = slot_columns(begun, params, pages, cache.table.shape[1], cache.padding_page)
    begin_slots(
        torch.from_numpy(columns).to(device), slots.seed, slots.penalty, slots.talker.fields, slots.predictor.fields,
        slots.seen,
        cache.table,
    )  # fmt: skip
    for slot, p, own in zip(begun, params, pages, strict=True):
        plain.reset(slot, p)
        plain_cache.assign(slot, own)
    assert torch.equal(cache.table, plain_cache.table)
    for name in ("seed", "penalty", "seen"):
        assert torch.equal(getattr(slots, name), getattr(plain, name)), name
    for part in ("talker", "predictor"):
        for name in ("do_sample", "temperature", "top_k", "top_p"):
            assert torch.equal(getattr(getattr(slots, part), name), getattr(getattr(plain, part), name)), (part, name)
