"""The activation's kernel against its plain twin: on a GPU where there is one, else through Triton's interpreter."""

import pytest
import torch

from sonorant.engine.model.codec.code2wav import SnakeBeta

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

from sonorant.engine.kernels.codec.snake import snake_beta

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(("rows", "channels", "size", "num_kept"), [(2, 3, 5, 0), (3, 5, 32, 54), (1, 2, 1500, 6)])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_snake_beta(rows: int, channels: int, size: int, num_kept: int, scale: float) -> None:
    plain = SnakeBeta(channels).requires_grad_(False)
    plain.alpha.normal_()
    plain.beta.normal_()
    plain.prepare()
    x = scale * torch.randn(rows, channels, size)
    columns = torch.randn(rows, 7 + channels * num_kept)  # of other layers too
    before = columns[:, 7:].view(rows, channels, num_kept) if num_kept else None
    expected = plain(x, before)
    arguments = (x, plain.frequency, plain.magnitude, columns)
    x, frequency, magnitude, columns = (tensor.to(DEVICE) for tensor in arguments)
    before = columns[:, 7:].view(rows, channels, num_kept) if num_kept else None
    samples = snake_beta(x, frequency, magnitude, before)
    torch.testing.assert_close(samples.cpu(), expected, rtol=1e-6, atol=2e-5 * scale)
