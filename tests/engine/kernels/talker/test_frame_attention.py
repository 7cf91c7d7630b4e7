"""The code predictor's attention in CUDA C++ compiles; `test_kernels.py` compares it with its twin."""

from collections.abc import Callable

import pytest

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

from sonorant.engine.kernels.talker.frame_attention import macros_of


@pytest.mark.parametrize("is_float16", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_the_kernel_compiles(
    is_first: bool, is_float16: bool, compiler: Callable[[str, dict[str, int]], bytes]
) -> None:
    assert compiler("talker/frame_attention.cu", macros_of(8, 16, is_first, is_float16))
