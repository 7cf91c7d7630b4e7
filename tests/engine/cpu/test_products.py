"""Products with rounded weights are, in every build, those of the numbers that the weights stand for."""

import numpy as np
import pytest
import torch

from sonorant.engine.cpu.library import at, builds, load
from sonorant.engine.cpu.model import FORMATS
from sonorant.engine.model.rounded import ROUNDINGS

pytestmark = pytest.mark.skipif(not builds(), reason="installed without a C compiler")

INPUTS, OUTPUTS = 384, 48  # three groups; a pair of tiles and one more


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 15])
@pytest.mark.parametrize("name", ROUNDINGS)
def test_every_build_multiplies_with_what_the_weights_stand_for(name: str, rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight = torch.randn(rows, INPUTS, generator=generator), torch.randn(OUTPUTS, INPUTS, generator=generator)
    w = ROUNDINGS[name].pack(weight)
    expected = x.double() @ ROUNDINGS[name].unpack(w, INPUTS).double().T
    for build, path in builds().items():
        y = torch.empty(rows, OUTPUTS)
        done = load(path).multiply_rows(at(y), at(x), at(w), rows, INPUTS, OUTPUTS, FORMATS[name])
        assert done == 0
        np.testing.assert_allclose(y, expected, rtol=0, atol=0.005, err_msg=build)  # rows are rounded to sixteen bits
