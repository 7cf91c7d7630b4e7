"""The codec decoder's kernels around the convolutions, against plain twins: on a GPU, else through the interpreter."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

from sonorant.engine.kernels.codec.depthwise import DepthwiseNorm, depthwise_norm
from sonorant.engine.kernels.codec.tails import BufferShape, Tails
from sonorant.engine.kernels.codec.waveform import waveform
from sonorant.engine.kernels.codec.window_attention import rotations, window_attention
from tests.engine.kernels.half_precision import DEVICE, TOLERANCE, randn

pytestmark = pytest.mark.slow

NUM_SLOTS = 4


@pytest.mark.parametrize("num_frames", [1, 5])
def test_tails_go_to_the_buffers_and_come_back_from_their_ends(num_frames: int) -> None:
    shapes = [BufferShape(6, 1, 16), BufferShape(54, 4, 48), BufferShape(1, 20, 32)]
    tails = Tails(shapes, DEVICE)
    kept = randn(NUM_SLOTS, tails.size)
    before = kept.clone()
    slots = torch.tensor([3, 1], device=DEVICE)
    array = tails.load(kept, slots, num_frames)
    buffers = tails.buffers(array, 2, num_frames)
    expected = [old.view(NUM_SLOTS, s.num_kept, -1) for s, old in zip(shapes, split(before, shapes), strict=True)]
    for shape, buffer, old in zip(shapes, buffers, expected, strict=True):
        assert buffer.shape == (2, shape.num_kept + num_frames * shape.positions_per_frame, shape.channels)
        assert torch.equal(buffer[:, : shape.num_kept], old[slots])
        buffer[:, shape.num_kept :] = randn(*buffer[:, shape.num_kept :].shape)
    tails.store(array, kept, slots, num_frames)
    for shape, buffer, new in zip(shapes, buffers, split(kept, shapes), strict=True):
        assert torch.equal(new.view(NUM_SLOTS, shape.num_kept, -1)[slots], buffer[:, -shape.num_kept :])
    assert torch.equal(kept[[0, 2]], before[[0, 2]])


def split(tails: Tensor, shapes: list[BufferShape]) -> tuple[Tensor, ...]:
    return tails.split([shape.num_kept * shape.channels for shape in shapes], 1)


@pytest.mark.parametrize("channels", [24, 256])
def test_depthwise_norm(channels: int) -> None:
    p = DepthwiseNorm(
        *(torch.randn(*s, device=DEVICE) for s in ((7, channels), (channels,), (channels,), (channels,))), 1e-6
    )
    x = randn(3, 6 + 5, channels)
    y = F.conv1d(x.float().transpose(1, 2), p.taps.T[:, None], p.bias, groups=channels).transpose(1, 2)
    expected = F.layer_norm(y, (channels,), p.norm_weight, p.norm_bias, p.eps)
    torch.testing.assert_close(depthwise_norm(x, p).float(), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("num_new", [70, 301])
def test_waveform(num_new: int) -> None:
    x = randn(3, 6 + num_new, 16) / 3
    bias = torch.full((1,), 0.3, device=DEVICE)
    taps = torch.cat((torch.eye(8, 7, device=DEVICE), torch.eye(8, 7, device=DEVICE)))  # [channels, taps]
    expected = F.conv1d(x.float().transpose(1, 2), taps[None], bias)[:, 0].clamp(-1, 1)
    assert (expected.abs() == 1).any() and (expected.abs() < 1).any()
    torch.testing.assert_close(waveform(x, bias, 7), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "dim"), [(2, 2, 64), (4, 2, 8)])
@pytest.mark.parametrize(("window", "chunks"), [(72, [1, 75, 12, 1]), (4, [3, 1, 20, 2])])
def test_window_attention_over_chunks_is_that_over_all(
    num_heads: int, num_kv_heads: int, dim: int, window: int, chunks: list[int]
) -> None:
    slots = torch.tensor([2, 0], device=DEVICE)
    total, num_rows = sum(chunks), len(slots)
    qkv = randn(num_rows, total, (num_heads + 2 * num_kv_heads) * dim)
    frequencies = 100.0 ** -torch.linspace(0, 1, dim // 2, device=DEVICE)
    # What masked entries hold must not matter.
    keys, values = randn(2, NUM_SLOTS, num_kv_heads, window - 1, dim) * 100
    num_frames = torch.zeros(NUM_SLOTS, dtype=torch.int64, device=DEVICE)
    parts = []
    for chunk in qkv.split(chunks, 1):
        rows = rotations(slots, num_frames, chunk.shape[1], frequencies)
        out = window_attention(chunk.flatten(0, 1).contiguous(), keys, values, rows, num_heads)
        parts.append(out.view(num_rows, chunk.shape[1], -1))
        num_frames[slots] += chunk.shape[1]
    expected = plain_attention(qkv.float(), num_heads, num_kv_heads, window, frequencies)
    torch.testing.assert_close(torch.cat(parts, 1).float(), expected, rtol=0, atol=TOLERANCE)


def plain_attention(qkv: Tensor, num_heads: int, num_kv_heads: int, window: int, frequencies: Tensor) -> Tensor:
    """Every row at once, from its first frame on."""
    num_rows, total, _ = qkv.shape
    dim = 2 * len(frequencies)
    heads = qkv.view(num_rows, total, -1, dim).transpose(1, 2)
    angles = torch.arange(total, device=DEVICE)[:, None] * frequencies
    cos, sin = angles.cos().repeat(1, 2), torch.cat((-angles.sin(), angles.sin()), -1)
    rotated = heads * cos + heads.roll(dim // 2, -1) * sin
    age = torch.arange(total, device=DEVICE)[:, None] - torch.arange(total, device=DEVICE)
    out = F.scaled_dot_product_attention(
        rotated[:, :num_heads],
        rotated[:, num_heads : num_heads + num_kv_heads],
        heads[:, num_heads + num_kv_heads :],
        attn_mask=(age >= 0) & (age < window),
        enable_gqa=True,
    )
    return out.transpose(1, 2).flatten(2)
