"""Programmatic dependent launch: a kernel starts while the one before it still runs, and waits where it needs its work.

What a launch costs, and the first reading of weights, then fall into the time of the kernel before. Every kernel here
calls `launch_dependents` first, and `wait` before it reads anything but weights: the kernel before may itself have
begun early, so that what one further back wrote is not there yet either. `wait` comes back once all of them are over.

Needs a GPU of compute capability 9 and a Triton that knows it; without either, OVERLAP is off and nothing changes.
"""

from functools import cache

import torch
import triton
from torch import Tensor

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

    launch_dependents, wait = gdc_launch_dependents, gdc_wait
    _IS_KNOWN = True
except ImportError:  # an older Triton
    _IS_KNOWN = False

    @triton.jit
    def launch_dependents():
        pass

    @triton.jit
    def wait():
        pass


def overlap(x: Tensor) -> dict[str, bool]:
    """Arguments of a launch that works on `x`."""
    if x.is_cuda and _is_supported(x.device):
        return {"OVERLAP": True, "launch_pdl": True}
    return {"OVERLAP": False}


@cache
def _is_supported(device: torch.device) -> bool:
    return _IS_KNOWN and torch.cuda.get_device_capability(device)[0] >= 9
