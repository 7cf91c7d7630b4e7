"""Which device and number format a worker computes with."""

import torch

from engine.config import DtypeName
from engine.errors import EngineError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def find_device(name: str) -> torch.device:
    """`auto` is the first CUDA device, or the CPU where there is none."""
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise EngineError(f"{name!r} is no device; use auto, cpu, or cuda:0 and so on") from error
    if device.type not in ("cpu", "cuda"):
        raise EngineError(f"{name!r} is not supported; use auto, cpu, or cuda:0 and so on")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EngineError(f"{name!r} does not exist here; there are {torch.cuda.device_count()} CUDA devices")
    return device


def compute_dtype(wanted: DtypeName, on_disk: str, device: torch.device) -> torch.dtype:
    """`auto` is float32 on the CPU, and on CUDA what the checkpoint has on disk."""
    if wanted != "auto":
        return _DTYPES[wanted]
    return torch.float32 if device.type == "cpu" else _DTYPES.get(on_disk, torch.bfloat16)
