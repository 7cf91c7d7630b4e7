"""What the codec's kernels are tried on, and how near to their twins they come."""

import torch
from torch import Tensor

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# What CUDA runs. The interpreter is compared in float32.
DTYPE, TOLERANCE = (torch.float16, 1e-2) if DEVICE.type == "cuda" else (torch.float32, 2e-5)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE).to(DTYPE)
