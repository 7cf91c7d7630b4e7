"""silu(gate) * up, where one matrix product has given both, side by side."""

import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

BLOCK = 1024


def swiglu(gate_up: Tensor) -> Tensor:
    """[rows, 2 * size] -> [rows, size]. Twin: the middle of `sonorant.engine.model.layers.MLP`."""
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, size)
    _swiglu[(rows, triton.cdiv(size, BLOCK))](gate_up, out, size, BLOCK=BLOCK, num_warps=4, **overlap(out))
    return out


@triton.jit
def _swiglu(gate_up, out, size, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    if OVERLAP:
        launch_dependents()
        wait()
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    gate = tl.load(gate_up + row * 2 * size + at, mask=inside, other=0.0)
    up = tl.load(gate_up + row * 2 * size + size + at, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    activated = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype).to(tl.float32)  # rounded as in the plain twin
    tl.store(out + row * size + at, (activated * up.to(tl.float32)).to(gate.dtype), mask=inside)
