"""Programmatic dependent launch: a kernel starts while the one before still runs, and waits before it uses its results.

The cost of a launch and of the first reads of weights is then hidden behind the kernel before. Every kernel here calls
`launch_dependents` first, and `wait` before it reads anything but weights. That includes the results of kernels further
back: the kernel before may itself have started early. `wait` returns once all earlier kernels have ended.

Needs a card with dependent launch and a Triton that supports it. Otherwise OVERLAP is False, and kernels
start one after the other as usual.
"""

import triton
from torch import Tensor

from sonorant.engine.card.device import card_of

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
    """Return the arguments that turn overlap on or off in the launch of a kernel that works on `x`."""
    card = card_of(x.device) if _IS_KNOWN else None
    if card is not None and card.has_dependent_launch:
        return {"OVERLAP": True, "launch_pdl": True}
    return {"OVERLAP": False}
