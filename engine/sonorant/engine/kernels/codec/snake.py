"""The codec decoder's activation; its output goes behind the inputs that the next convolution remembers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # elements per program


def snake_beta(x: Tensor, frequency: Tensor, magnitude: Tensor, before: Tensor | None = None) -> Tensor:
    """x + sin^2(x * frequency) * magnitude, per channel: [rows, channels, n] -> [rows, channels, kept + n].

    `before` [rows, channels, kept] is copied in front. Twin: `sonorant.engine.model.codec.code2wav.SnakeBeta`, which
    rounds after each operation and not only at the end.
    """
    x = x.contiguous()
    rows, channels, size = x.shape
    num_kept = 0 if before is None else before.shape[2]
    out = torch.empty(rows, channels, num_kept + size, dtype=x.dtype, device=x.device)
    width = min(BLOCK, triton.next_power_of_2(num_kept + size))
    lines = BLOCK // width
    grid = (triton.cdiv(rows * channels, lines), triton.cdiv(num_kept + size, width))
    _snake_beta[grid](
        x,
        x if before is None else before,
        0 if before is None else before.stride(0),
        frequency,
        magnitude,
        out,
        rows * channels,
        channels,
        size,
        num_kept,
        LINES=lines,
        WIDTH=width,
        num_warps=4,
    )
    return out


# Do not specialize on the sizes: there are many, of any alignment, and one compiled kernel is to serve all of them.
@triton.jit(do_not_specialize=["before_stride", "num_lines", "channels", "size", "num_kept"])
def _snake_beta(
    x,
    before,
    before_stride,
    frequency,
    magnitude,
    out,
    num_lines,
    channels,
    size,
    num_kept,
    LINES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    line = (tl.program_id(0) * LINES + tl.arange(0, LINES)).to(tl.int64)[:, None]
    at = (tl.program_id(1) * WIDTH + tl.arange(0, WIDTH))[None, :]
    is_line = line < num_lines
    row, channel = line // channels, line % channels
    is_kept = is_line & (at < num_kept)
    is_new = is_line & (at >= num_kept) & (at < num_kept + size)

    new = tl.load(x + line * size + (at - num_kept), mask=is_new, other=0.0)
    wide = new.to(tl.float32)
    angle = wide * tl.load(frequency + channel, mask=is_line, other=0.0).to(tl.float32)
    # sin^2 has the period pi. Subtract the nearest multiple in two parts, the first of which is exact.
    turns = tl.floor(angle * 0.3183098861837907 + 0.5)
    wave = tl.sin((angle - turns * 3.140625) - turns * 0.0009676535897932)
    wide += wave * wave * tl.load(magnitude + channel, mask=is_line, other=0.0).to(tl.float32)

    kept = tl.load(before + row * before_stride + channel * num_kept + at, mask=is_kept, other=0.0)
    value = tl.where(at < num_kept, kept.to(tl.float32), wide).to(new.dtype)
    tl.store(out + line * (num_kept + size) + at, value, mask=is_kept | is_new)
