"""Convolutions of channels that fill no group, against PyTorch's."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sonorant.engine.cpu.library import Kept, at, library
from sonorant.engine.cpu.packing import conv_of, padded

pytestmark = pytest.mark.skipif(library() is None, reason="installed without a C compiler")


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_channels_that_fill_no_group_are_convolved(rounded: bool, has_bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*shape, generator=generator) for shape in ((13, 20), (24, 20, 3)))
    bias = torch.randn(24, generator=generator) if has_bias else None
    kept, y, extended = Kept(), torch.full((9, 32), 7.0), padded(x, 1)
    conv = conv_of(kept, weight, bias, dilation=2, rounded=rounded)
    of_outputs = [each for each in kept._all if isinstance(each, Tensor) and each.dim() == 1]
    assert [len(each) for each in of_outputs] == [32] * (1 + rounded)  # its functions read whole groups
    functions = library()
    assert functions is not None
    functions.convolve_positions(at(y), at(extended), kept.array("Conv", [conv]), 9)
    expected = F.conv1d(x.T[None], weight, bias, dilation=2)[0].T
    torch.testing.assert_close(y[:, :24], expected, rtol=0, atol=2e-2 if rounded else 1e-4)
    assert not y[:, 24:].any()
