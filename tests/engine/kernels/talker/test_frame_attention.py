"""The code predictor's attention in CUDA C++ compiles; `test_kernels.py` compares it with its twin."""

import pytest

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

from sonorant.engine.kernels.talker.frame_attention import macros_of


@pytest.mark.parametrize("is_float16", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_the_kernel_compiles(
    is_first: bool, is_float16: bool, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC comes with the CUDA builds of torch, and with `dev`")
    from sonorant.engine.kernels.cuda_code import compiled

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
    assert compiled("talker/frame_attention.cu", macros_of(8, 16, is_first, is_float16), "sm_90a")
