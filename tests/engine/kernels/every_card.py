"""Every kernel that a server launches on some card compiles for it and fits its shared memory. No GPU is needed.

`make test-kernels` compiles all of them: on two cores that takes longer than all other tests together. CI compiles one
of each source, that of the largest calls, and only if kernels have changed.
"""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")
pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC comes with the CUDA builds of torch, and with `dev`")

from sonorant.engine.tools.kernels import CARDS

pytestmark = pytest.mark.timeout(1200)  # on two busy cores

# One kernel of each operation; those with an alternative need only one of them.
OPERATIONS = {
    "products of one row": {"gemv._row", "gemm/skinny_gemm.cu"},
    "attention over pages": {"attention._attend"},
    "attention of the code predictor": {"frame_attention._frame", "talker/frame_attention.cu"},
    "norm": {"norm._add_rms_norm"},
    "activation of the talker": {"swiglu._swiglu"},
    "embeddings": {"embedding._row_inputs"},
    "sampling": {"sampling._choose"},
    "slots": {"slots._begin"},
    "convolutions": {"convolution._convolve"},
    "residual units": {"convolution._residual_unit"},
    "attention of the codec": {"window_attention._window_attention"},
    "depthwise convolution": {"depthwise._depthwise_norm"},
    "convolution tails": {"tails._copy"},
    "last sums": {"waveform._waveform"},
    "activation of the plain codec": {"snake._snake_beta"},
}
# Those of the codec for Hopper alone, and what a card needs for the other ones in CUDA C++.
HOPPER = {"gemm/wgmma_gemm.cu", "codec/packed_convolution.cu", "codec/resident_unit.cu"}
DEPENDENT = {"gemm/skinny_gemm.cu", "talker/frame_attention.cu"}


@pytest.mark.parametrize("capability", CARDS)
@pytest.mark.parametrize("amount", [(), ("--one-of-each",)], ids=["all", "one-of-each"])
def test_each_operation_has_a_kernel_that_compiles_and_fits(capability: str, amount: tuple[str, ...]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "sonorant.engine.tools.kernels", "--card", capability, *amount]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    compiled = [json.loads(line) for line in ended.stdout.splitlines()]
    assert not [each for each in compiled if each["error"] or not each["fits"]]
    assert ended.returncode == 0, ended.stderr
    names = {each["name"] for each in compiled}
    assert not [operation for operation, any_of in OPERATIONS.items() if not names & any_of]
    expected = {"9.0": HOPPER | DEPENDENT, "10.0": DEPENDENT, "12.0": DEPENDENT}.get(capability, set())
    assert {name for name in names if name.endswith(".cu")} == expected


@pytest.mark.parametrize("capability", ["9.0"], ids=["all-and-one-of-each"])
def test_what_is_listed_is_what_a_worker_on_cuda_asks_for(capability: str) -> None:
    """Else a first start compiles it again, one kernel after the other, while everybody waits."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.engine.kernels.listed_on_cuda", capability]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
