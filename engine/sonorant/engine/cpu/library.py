"""Loads the functions in C, compiled when the distribution is built, if there is a C compiler.

The structures have the same fields as in C, where each is explained. They hold addresses, so the code that makes one
keeps the tensors alive in a `Kept`.
"""

import ctypes
import os
import re
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sonorant.engine.cpu.sources import digest
from sonorant.engine.errors import EngineError

LANES = 16  # PACKED in convolutions.h; sizes of models must be multiples of it
LIMIT = 4095  # of rounded weights of convolutions, as there
# Builds of engine/build_cpu.py, best first: what torch must say that the CPU has ("": anything), and Linux.
BUILDS: tuple[tuple[str, str, set[str]], ...] = (
    ("vnni", "AVX512", {"avx512_vnni"}),
    ("avx512", "AVX512", set()),
    ("avxvnni", "AVX2", {"avx_vnni"}),
    ("avx2", "AVX2", set()),
    ("i8mm", "", {"asimddp", "i8mm"}),  # 64-bit Arm, like the next one
    ("dotprod", "", {"asimddp"}),
)
LEVELS = ("AVX512", "AVX2", "")
ANY = "any"  # the build for every CPU of this architecture
BUILD_VARIABLE = "SONORANT_CPU"  # names the build to use, for tests and measurements
SOURCES = Path(__file__).with_name("c")


class Stack(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("hidden", "intermediate", "heads", "kv_heads", "head_dim", "layers")),
        ("format", c_int64),
        ("eps", c_double),
        *((name, c_void_p) for name in ("qkv", "out", "gate", "up", "down", "input_norm", "qk_norm", "mlp_norm")),
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
        ("tables_format", c_int64),
        *((name, c_void_p) for name in ("head", "predictor_heads", "shrink", "shrink_bias", "tables", "banned")),
        *((name, c_void_p) for name in ("seen", "last_frame", "seed", "penalty")),
        ("first", Sampling),
        ("later", Sampling),
    ]


class Conv(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("inputs", "outputs", "taps", "dilation", "tail")),
        *((name, c_void_p) for name in ("weight", "scales", "bias")),
    ]


class Snake(Structure):
    _fields_ = [(name, c_void_p) for name in ("frequency", "magnitude")]


class Unit(Structure):
    _fields_ = [("before", Snake), ("wide", Conv), ("between", Snake), ("narrow", Conv)]


class Block(Structure):
    _fields_ = [("rate", c_int64), ("before", Snake), ("up", Conv), ("units", Unit * 3)]


class Latent(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("ratio", "channels", "normed", "tail")),
        ("up", Conv),
        *((name, c_void_p) for name in ("depthwise", "depthwise_bias", "norm", "norm_bias")),
        *((name, Conv) for name in ("widen", "narrow")),
    ]


class Layer(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("input_norm", "mlp_norm")),
        *((name, Conv) for name in ("qkv", "out", "gate_up", "down")),
    ]


class Codec(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("books", "codebook_size", "frame_samples")),
        *((name, c_void_p) for name in ("table", "table_scales")),
        *((name, Conv) for name in ("pre", "input")),
        *((name, c_int64) for name in ("num_layers", "heads", "kv_heads", "head_dim", "window")),
        ("eps", c_double),
        ("periods", c_void_p),
        ("layers", POINTER(Layer)),
        ("norm", c_void_p),
        ("output", Conv),
        ("num_latents", c_int64),
        ("latents", POINTER(Latent)),
        ("first", Conv),
        ("num_blocks", c_int64),
        ("blocks", POINTER(Block)),
        ("before_last", Snake),
        ("last", c_void_p),
        ("last_bias", c_float),
        ("last_tail", c_int64),
    ]


class CodecState(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("num_frames", "tails", "keys", "values")),
        *((name, c_int64) for name in ("tail_size", "kept_size")),
        ("rounding", c_void_p),
    ]


class Stage(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("stride", "channels")),
        *((name, Conv) for name in ("wide", "narrow", "down")),
    ]


class EncoderLayer(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("norm", "norm_bias", "mlp_norm", "mlp_norm_bias")),
        *((name, Conv) for name in ("qkv", "out", "widen", "narrow")),
    ]


class CodecEncoder(Structure):
    _fields_ = [
        ("first", Conv),
        ("num_stages", c_int64),
        ("stages", POINTER(Stage)),
        ("last", Conv),
        *((name, c_int64) for name in ("num_layers", "heads", "kv_heads", "head_dim")),
        ("eps", c_double),
        ("layers", POINTER(EncoderLayer)),
        ("downsample", Conv),
        *((name, c_int64) for name in ("num_semantic", "num_books")),
        *((name, Conv) for name in ("semantic", "acoustic")),
        ("books", POINTER(Conv)),
    ]


class SpeakerBlock(Structure):
    _fields_ = [
        ("num_parts", c_int64),
        ("in", Conv),
        ("parts", POINTER(Conv)),
        *((name, Conv) for name in ("out", "squeeze", "excite")),
    ]


class SpeakerEncoder(Structure):
    _fields_ = [
        ("first", Conv),
        ("num_blocks", c_int64),
        ("blocks", POINTER(SpeakerBlock)),
        *((name, Conv) for name in ("joined", "attended", "whole", "scored", "last")),
    ]


class Kept:
    """Keeps the memory alive that structures point to. Tensors must be contiguous and on the CPU."""

    def __init__(self) -> None:
        self._all: list[object] = []

    def tensor(self, tensor: Tensor) -> int:
        """Keep a tensor and return its address."""
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise ValueError("only a contiguous tensor on the CPU can be passed to a C function")
        self._all.append(tensor)
        return tensor.data_ptr()

    def tensors(self, tensors: Sequence[Tensor]) -> int:
        """Keep some tensors and return the address of an array of their addresses."""
        table = (c_void_p * len(tensors))(*map(self.tensor, tensors))
        self._all.append(table)
        return ctypes.addressof(table)


@cache
def library() -> Any | None:
    """Return the library with the functions that `load` declares; None if this machine has no build. Raises EngineError
    if SONORANT_CPU names a build that cannot run here, or as `load`."""
    paths = builds()
    wanted = os.environ.get(BUILD_VARIABLE)
    if wanted and wanted not in paths:
        raise EngineError(f"{BUILD_VARIABLE} is {wanted}; what was compiled and runs on this CPU: {', '.join(paths)}")
    return load(paths[wanted or next(iter(paths))]) if paths else None


def builds() -> dict[str, Path]:
    """Return the builds that this machine can run, by name, the best one first."""
    level, flags = torch.backends.cpu.get_cpu_capability(), _flags()
    levels = LEVELS[LEVELS.index(level if level in LEVELS else "") :]
    names = [name for name, needed, features in BUILDS if needed in levels and features <= flags]
    paths = {name: Path(__file__).with_name(f"cpu-{name}.so") for name in (*names, ANY)}
    return {name: path for name, path in paths.items() if path.exists()}


def _flags() -> set[str]:
    """What Linux says of the CPU's instructions; empty on machines where it says it differently."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return set(found[1].split()) if found else set()


def load(path: Path) -> Any:
    """Load the functions of a build. Each file has its own threads. Raises EngineError if it is a file of another
    version, as in a checkout that was updated and not installed again."""
    try:
        functions = _declared(ctypes.CDLL(str(path)))
        if functions.sources_version() != digest(SOURCES).encode():
            raise OSError("compiled from other C files")
    except (AttributeError, OSError) as error:
        raise EngineError(
            f"{path.name} is of another version than the code ({error}); "
            "install sonorant-server again (in a checkout: make setup)"
        ) from None
    return functions


def _declared(functions: Any) -> Any:
    functions.stack_forward.argtypes = [
        *(POINTER(Stack), c_void_p, c_int64, c_void_p, c_void_p, POINTER(Pool), POINTER(Watch)),
    ]
    functions.draw_frames.argtypes = [
        *(POINTER(Frames), c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p),
    ]
    functions.multiply_rows.argtypes = [c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int64]
    functions.convolve_positions.argtypes = [c_void_p, c_void_p, POINTER(Conv), c_int64]
    functions.decode_frames.argtypes = [
        *(POINTER(Codec), POINTER(CodecState), c_void_p, c_void_p, c_int64, c_int64, c_void_p),
    ]
    functions.encode_recording.argtypes = [
        *(POINTER(CodecEncoder), c_void_p, c_int64, c_void_p, c_void_p, c_void_p),
    ]
    functions.encode_speaker.argtypes = [POINTER(SpeakerEncoder), c_void_p, c_int64, c_void_p]
    functions.sources_version.restype = c_char_p
    functions.use_threads.argtypes = [c_int64]
    functions.use_threads.restype = c_int64
    return functions


def use_threads(count: int) -> None:
    """Have torch and the C functions share their loops among so many threads. Call it once in a process."""
    torch.set_num_threads(count)
    if (functions := library()) is not None:
        functions.use_threads(count)


def leave_cores_to_functions() -> None:
    """Have torch compute in one thread from now on. Its other threads look for work for 9 ms after each operation, on
    the cores where the C functions share their loops."""
    torch.set_num_threads(1)
