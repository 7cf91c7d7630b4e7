"""Finds the GPU that a device name means. Asks the driver's library NVML, so that this process does not start CUDA."""

import ctypes
import importlib.util
import logging
import os
import re
from contextlib import suppress
from pathlib import Path

from sonorant.engine.card.card import GIB, Card, pretended

log = logging.getLogger(__name__)

DEVICES = Path("/dev")
_ASSUMED = Card.of("a GPU that the driver does not describe, taken to have 16 GiB", (8, 0), 16 * GIB)


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def find_card(device: str) -> Card | None:
    """Return the GPU that a device setting means, or None for the CPU. Blocks for some milliseconds."""
    if device == "cpu" or not (sees_gpu() and _torch_has_cuda()):
        return None
    index = int(device.partition(":")[2] or 0)
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if names and index >= len(names):
        return None
    return pretended(_ask(names[index] if names else str(index)) or _ASSUMED)


def sees_gpu() -> bool:
    """Whether there is a GPU here, and CUDA_VISIBLE_DEVICES does not hide all of them."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") and any(DEVICES.glob("nvidia[0-9]*"))


def _torch_has_cuda() -> bool:
    """Whether the installed PyTorch is built for CUDA. Does not import it, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    with suppress(OSError, TypeError):
        text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text()  # type: ignore[union-attr, index]
        return re.search(r"^cuda\b[^=\n]*=\s*['\"]", text, re.MULTILINE) is not None
    return False


def _ask(name: str) -> Card | None:
    """Ask NVML for a GPU by index or UUID; None if NVML cannot tell."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        log.warning("the engine's sizes cannot be adapted to the GPU: %s", error)
        return None
    if nvml.nvmlInit_v2():
        return None
    try:
        handle, memory, text = ctypes.c_void_p(), _Memory(), ctypes.create_string_buffer(96)
        if name.isdecimal():
            failed = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(handle))
        else:
            failed = nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
        if failed or nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
            return None
        nvml.nvmlDeviceGetName(handle, text, ctypes.c_uint(len(text)))
        major, minor = ctypes.c_int(8), ctypes.c_int(0)
        nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
        cores = ctypes.c_uint(0)
        if (count := getattr(nvml, "nvmlDeviceGetNumGpuCores", None)) is not None:  # of newer drivers
            count(handle, ctypes.byref(cores))
        multiprocessors = cores.value // (64 if (major.value, minor.value) == (8, 0) else 128)
        found = text.value.decode(errors="replace")
        return Card.of(found, (major.value, minor.value), memory.total, memory.free, max(1, multiprocessors))
    finally:
        nvml.nvmlShutdown()
