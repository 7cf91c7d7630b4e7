import pytest
import torch

from sonorant.engine.cuda import compute_dtype, find_device
from sonorant.engine.errors import EngineError

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")


def test_devices() -> None:
    assert find_device("cpu") == CPU
    assert find_device("auto") == (CUDA if torch.cuda.is_available() else CPU)
    for name, message in (("gpu", "is no device"), ("meta", "is not supported"), ("cuda:99", "does not exist here")):
        with pytest.raises(EngineError, match=f"'{name}' {message}"):
            find_device(name)


def test_number_formats() -> None:
    assert compute_dtype("auto", "bfloat16", CPU) == torch.float32
    assert compute_dtype("auto", "bfloat16", CUDA) == torch.bfloat16
    assert compute_dtype("auto", "float32", CUDA) == torch.float32
    assert compute_dtype("bfloat16", "float32", CPU) == torch.bfloat16
    assert compute_dtype("float32", "bfloat16", CUDA) == torch.float32
