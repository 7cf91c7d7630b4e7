import ctypes
from pathlib import Path

import pytest
import torch

from sonorant.engine.cuda import compute_dtype, find_device, zeros
from sonorant.engine.errors import EngineError

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")


def test_devices() -> None:
    assert find_device("cpu") == CPU
    assert find_device("auto") == (CUDA if torch.cuda.is_available() else CPU)
    for name, message in (("gpu", "is not a device"), ("meta", "is not supported"), ("cuda:99", "does not exist here")):
        with pytest.raises(EngineError, match=f"'{name}' {message}"):
            find_device(name)


def test_where_there_is_no_device_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(EngineError, match=r"'cuda' does not exist here; torch \S+ is built for the CPU only"):
        find_device("cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    with pytest.raises(EngineError, match=r"driver is installed, but .* new enough for CUDA 13\.0"):
        find_device("cuda")

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(EngineError, match=r"NVIDIA's driver \(libcuda\.so\.1\) is not installed; .*--gpus all"):
        find_device("cuda")


def test_number_formats() -> None:
    assert compute_dtype("auto", "bfloat16", CPU) == torch.float32
    assert compute_dtype("auto", "bfloat16", CUDA) == torch.bfloat16
    assert compute_dtype("auto", "float32", CUDA) == torch.float32
    assert compute_dtype("bfloat16", "float32", CPU) == torch.bfloat16
    assert compute_dtype("float32", "bfloat16", CUDA) == torch.float32


def test_zeros_take_no_memory_until_they_are_written() -> None:
    def resident_mib() -> int:
        (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS:"))
        return int(line.split()[1]) // 1024

    before = resident_mib()
    made = zeros((3, 100, 2**20), torch.device("cpu"), torch.bfloat16)
    assert made.shape == (3, 100, 2**20)
    assert resident_mib() - before < 100  # of 600
    made[0, :, :: 2**19] = 1  # the first of 256 pages
    assert resident_mib() - before < 100
    made[1] = 1
    assert resident_mib() - before >= 200
    assert not made[2, 99].any()
