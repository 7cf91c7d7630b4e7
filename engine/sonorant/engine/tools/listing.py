"""Lists every kernel that the workers of a pair launch on a card, by going through their steps without a card.

The steps run on torch's meta device: shapes are computed, and nothing else. So a GPU is needed neither to list the
kernels nor to compile them. Lists and compiles in a process of its own, as it changes what a launch does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from sonorant.engine.card.card import Card
from sonorant.engine.card.device import assumed
from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.code2wav.run.runner import ATTENDED_ROWS, speak_plainly
from sonorant.engine.code2wav.schedule.passes import shapes
from sonorant.engine.config import EngineConfig
from sonorant.engine.cuda import bucket_sizes
from sonorant.engine.kernels import cuda_code
from sonorant.engine.model.alignment import AlignmentHead
from sonorant.engine.model.codec.code2wav import Code2Wav
from sonorant.engine.model.codec.code2wav_fused import FusedCode2Wav
from sonorant.engine.model.codec.code2wav_state import CodecState
from sonorant.engine.model.talker import Talker
from sonorant.engine.sizes import max_pass_frames
from sonorant.engine.talker.run.fused import FusedSteps
from sonorant.engine.talker.run.kv_cache import KVCache
from sonorant.engine.talker.run.slot_state import SlotArrays
from sonorant.engine.talker.run.speech_sample import NUM_FRAMES

NUM_PAGES = 512  # of the KV cache; no kernel depends on how many there are


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel for one kind of arguments. `compile` keeps the code in the cache folder, and returns the bytes of
    shared memory that a block takes. Raises what the compiler raises."""

    name: str
    kind: object  # what it is compiled for; kernels of the same kind are the same
    compile: Callable[[], int]


@dataclass(frozen=True, slots=True)
class _Pointer:
    """What Triton sees of a tensor."""

    dtype: torch.dtype
    address: int

    def data_ptr(self) -> int:
        return self.address

    @staticmethod
    def ptr_range() -> int:
        return 0


class _Compiler:
    """Stands for Triton's driver: one device, of which only the architecture is known."""

    def __init__(self, card: Card) -> None:
        digits = card.architecture.removeprefix("sm_").rstrip("a")
        self._target = GPUTarget("cuda", int(digits), 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0


class _Launches:
    """Takes the place of launches: remembers each new kind of arguments of each kernel."""

    def __init__(self) -> None:
        self.kernels: dict[object, Kernel] = {}
        self._run = JITFunction.run

    def run(self, function: Any, *arguments: Any, grid: Any, warmup: bool, **more: Any) -> None:
        seen = tuple(map(_seen, arguments))
        named = {name: _seen(value) for name, value in more.items()}
        kinds = [
            _kind(value, is_special=parameter.name not in function.do_not_specialize)
            for value, parameter in zip(seen, function.params, strict=False)
        ]
        key = function, tuple(kinds), tuple((name, repr(value)) for name, value in sorted(named.items()))
        if key not in self.kernels:
            compile_ = partial(self._compile, function, seen, named)
            name = f"{function.fn.__module__.rpartition('.')[2]}.{function.fn.__name__}"
            self.kernels[key] = Kernel(name, key, compile_)

    def _compile(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> int:
        compiled = self._run(function, *arguments, grid=(1,), warmup=True, **named)
        _build_launcher(compiled)
        return int(compiled.metadata.shared)


def _build_launcher(compiled: Any) -> None:
    """Older versions of Triton compile C code, too, for each kind of arguments: half a second or more each."""
    if hasattr(nvidia, "compile_module_from_src"):
        with suppress(Exception):  # without the driver's library, say: then the worker makes it, once it is there
            nvidia.CudaUtils()  # is compiled, too
            nvidia.CudaLauncher(compiled.src, compiled.metadata)


def _seen(value: Any) -> Any:
    return _Pointer(value.dtype, int(value.storage_offset()) * value.itemsize) if isinstance(value, Tensor) else value


def _kind(value: Any, *, is_special: bool) -> object:
    """What of an argument a kernel is compiled for."""
    if isinstance(value, _Pointer):
        return value.dtype, value.address % 16 == 0
    if isinstance(value, bool) or not isinstance(value, int):
        return type(value), value if not isinstance(value, float) else None
    return (value == 1, value % 16 == 0, value.bit_length() > 31) if is_special else value.bit_length() > 31


def kernels_of(checkpoint: Checkpoint, config: EngineConfig, card: Card) -> list[Kernel]:
    """Return all kernels of a pair on this card, those of small calls first. Sizes must be numbers."""
    checkpoint = _shallow(checkpoint)
    with assumed(card) as device, _listing(card) as (launches, sources), torch.inference_mode():
        if config.code2wav.dtype in ("auto", "float16"):
            _run_codec(checkpoint, config, device)  # first, as its kernels take longest
        if config.code2wav.dtype == "auto":
            _run_comparison(checkpoint, device)
        _run_talker(checkpoint, config, device)
        in_cpp = [Kernel(source.file, source, partial(_compile_source, source)) for source in dict.fromkeys(sources)]
        return [*launches.kernels.values(), *in_cpp]


def _shallow(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with two layers in each stack of the talker: all layers have the same kernels."""
    talker, predictor = checkpoint.talker, checkpoint.code_predictor
    return replace(
        checkpoint,
        talker=replace(talker, stack=replace(talker.stack, num_layers=2)),
        code_predictor=replace(predictor, stack=replace(predictor.stack, num_layers=2)),
    )


def _compile_source(source: cuda_code.Source) -> int:
    source.compile()
    return source.shared_bytes


@contextmanager
def _listing(card: Card) -> Iterator[tuple[_Launches, list[cuda_code.Source]]]:
    """Inside the block kernels are listed and not launched. What is compiled later is for this card, too."""
    launches, sources = _Launches(), list[cuda_code.Source]()
    driver.set_active(_Compiler(card))
    run = JITFunction.run
    JITFunction.run = lambda function, *arguments, **more: launches.run(function, *arguments, **more)
    cuda_code.listed = sources
    try:
        yield launches, sources
    finally:
        JITFunction.run = run
        cuda_code.listed = None


def _run_talker(checkpoint: Checkpoint, config: EngineConfig, device: torch.device) -> None:
    dtype = torch.float32 if config.dtype == "float32" else torch.bfloat16
    with torch.device(device):
        talker = Talker(checkpoint).to(dtype).requires_grad_(False)
    talker.prepare()
    cache = KVCache(checkpoint.talker.stack, config.talker, NUM_PAGES, device, dtype)
    slots = SlotArrays(config.talker.num_slots, checkpoint, device, dtype)
    head = AlignmentHead(0, 0, 1.0)  # a layer that is watched has kernels of its own, and layer 1 those without
    FusedSteps(talker, checkpoint, config, cache, slots, head).run_all(device)


def _run_codec(checkpoint: Checkpoint, config: EngineConfig, device: torch.device) -> None:
    with torch.device(device):
        plain = Code2Wav(checkpoint.codec.decoder).to(torch.float16).requires_grad_(False)
    plain.prepare()
    decoder = FusedCode2Wav(plain)
    state = decoder.new_state(config.num_codec_states)
    sizes = bucket_sizes(config.code2wav.max_decode_batch)
    num_codebooks = checkpoint.codec.decoder.num_quantizers

    def rows(num_rows: int, num_frames: int) -> tuple[Tensor, CodecState, Tensor]:
        codes = torch.empty(num_rows, num_frames, num_codebooks, dtype=torch.int64, device=device)
        return codes, state, torch.empty(num_rows, dtype=torch.int64, device=device)

    most_frames = max_pass_frames("cuda", config.talker.num_slots, torch.float16.itemsize)
    for num_frames, usual in shapes(config.code2wav.chunk_ramp, sizes, most_frames).items():
        for num_rows in usual:
            decoder.step(*rows(num_rows, num_frames))
    for num_frames, attended in ATTENDED_ROWS.items():
        for num_rows in attended:
            decoder.attend(*rows(num_rows, num_frames))


def _run_comparison(checkpoint: Checkpoint, device: torch.device) -> None:
    """What Code2Wav compares its formats with."""
    with torch.device(device):
        plain = Code2Wav(checkpoint.codec.decoder).requires_grad_(False)
    plain.prepare()
    num_codebooks = checkpoint.codec.decoder.num_quantizers
    speak_plainly(plain, torch.empty(NUM_FRAMES, num_codebooks, dtype=torch.int64, device=device))
