"""The functions of frame.c, and what they are given. Compiled when the distribution is built, if there is a C compiler.

Field by field as in frame.c, where each is explained. A structure holds addresses: whoever makes one keeps what they
are of, as `Made` does.
"""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_double, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# The first that this machine can run and that was built; see engine/build_cpu.py.
BUILT_FOR = {"AVX512": ("v4", "v3", "any"), "AVX2": ("v3", "any")}


class Stack(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("hidden", "intermediate", "heads", "kv_heads", "head_dim", "layers")),
        ("is_wide", c_int64),
        ("eps", c_double),
        *((name, c_void_p) for name in ("qkv", "out", "gate_up", "down", "input_norm", "qk_norm", "mlp_norm")),
        *((name, c_void_p) for name in ("norm", "cos", "sin")),
    ]


class Pool(Structure):
    _fields_ = [
        ("storage", c_void_p),
        ("num_positions", c_int64),
        ("table", c_void_p),
        ("table_width", c_int64),
        ("page_size", c_int64),
    ]


class Watch(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("layer", "head", "count")),
        *((name, c_void_p) for name in ("first", "logits")),
    ]


class Sampling(Structure):
    _fields_ = [(name, c_void_p) for name in ("do_sample", "temperature", "top_k", "top_p")]


class Frames(Structure):
    _fields_ = [
        ("predictor", POINTER(Stack)),
        *((name, c_int64) for name in ("hidden", "num_codebooks", "vocab", "predictor_vocab", "eos")),
        *((name, c_void_p) for name in ("head", "predictor_heads", "tables", "banned")),
        *((name, c_void_p) for name in ("seen", "last_frame", "seed", "penalty")),
        ("first", Sampling),
        ("later", Sampling),
    ]


class Kept:
    """What structures point to. Tensors are of the CPU and contiguous."""

    def __init__(self) -> None:
        self._all: list[object] = []

    def tensor(self, tensor: Tensor) -> int:
        """Its address."""
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise ValueError("only a contiguous tensor of the CPU has an address")
        self._all.append(tensor)
        return tensor.data_ptr()

    def tensors(self, tensors: Sequence[Tensor]) -> int:
        """Address of their addresses."""
        table = (c_void_p * len(tensors))(*map(self.tensor, tensors))
        self._all.append(table)
        return ctypes.addressof(table)


@cache
def library() -> Any | None:
    """With `stack_forward` and `draw_frames`; None if it was not built for this machine."""
    for machine in BUILT_FOR.get(torch.backends.cpu.get_cpu_capability(), ("any",)):
        path = Path(__file__).with_name(f"frame-{machine}.so")
        if path.exists():
            functions = ctypes.CDLL(str(path))
            functions.stack_forward.argtypes = [
                *(POINTER(Stack), c_void_p, c_int64, c_void_p, c_void_p, POINTER(Pool), POINTER(Watch)),
            ]
            functions.draw_frames.argtypes = [
                *(POINTER(Frames), c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p),
            ]
            return functions
    return None
