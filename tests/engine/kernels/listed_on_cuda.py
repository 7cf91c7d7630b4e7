"""Prints each kernel that is listed for a card but that a worker on CUDA would not ask for, or the other way round:
`python -m tests.engine.kernels.listed_on_cuda 9.0`. A process of its own, as listing changes what launches do.

Kernels are listed on torch's meta device, where a worker's code would be on `cuda:0`. So the steps run a second time
with meta tensors that say that they are on CUDA.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from sonorant.engine.card import device as card_device
from sonorant.engine.card.card import Card
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.config import EngineConfig
from sonorant.engine.tools import listing
from sonorant.engine.tools.kernels import CARDS

CUDA, META = torch.device("cuda:0"), torch.device("meta")


class SaysCuda(TorchFunctionMode):
    """Meta tensors say that they are on CUDA, and what is made there is made on the meta device."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.Tensor.device.__get__, torch.Tensor.is_cuda.__get__) and args[0].is_meta:  # type: ignore[attr-defined]
            return CUDA if func == torch.Tensor.device.__get__ else True  # type: ignore[attr-defined]
        if func is torch.Tensor.pin_memory:
            return args[0]
        named = {name: _made_on(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
        return func(*map(_made_on, args), **named)


def _made_on(value: object) -> object:
    return META if isinstance(value, torch.device) and value.type == "cuda" else value


@contextmanager
def _on_cuda(_card: Card) -> Iterator[torch.device]:
    with SaysCuda():
        yield CUDA


def main(capability: str) -> int:
    card, folder = CARDS[capability], resolve_model("qwen3-tts-12hz-0.6b-customvoice")
    config = EngineConfig.of(
        folder, num_slots=64, max_prefill_rows=64, max_decode_batch=32, code2wav_dtype="auto", enforce_eager=True
    )
    kernels = partial(listing.kernels_of, load_checkpoint(folder), config, card)
    listed = {kernel.kind: kernel.name for kernel in kernels()}
    listing.assumed = _on_cuda  # type: ignore[attr-defined]
    card_device._found = lambda _device: card  # type: ignore[assignment]
    asked_for = {kernel.kind: kernel.name for kernel in kernels()}
    for kind in listed.keys() ^ asked_for.keys():
        print("listed, but not asked for:" if kind in listed else "asked for, but not listed:", kind)
    print(f"{len(listed)} kernels listed, {len(asked_for)} asked for", file=sys.stderr)
    return int(listed.keys() != asked_for.keys())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
