"""Loads tensors from safetensors files into modules: each tensor exactly once, with none left over.

Modules are built on the meta device and their attribute names mirror the tensor names, so there is no mapping table.
Knows nothing about any particular module.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from sonorant.engine.checkpoint.files import open_file
from sonorant.engine.errors import CheckpointError

MAX_NAMES_SHOWN = 8


class TensorFile:
    """One safetensors file. The header is read at once, tensors are read by `load`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opened(path) as tensors:
            self._shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118

    @property
    def names(self) -> Collection[str]:
        return self._shapes.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def load(self, names: Collection[str], device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        """Return copies of these tensors on `device`, as `dtype`.

        Raises CheckpointError if a tensor is not floating point or has values that are not finite.
        """
        loaded = {}
        with _opened(self.path) as tensors:
            for name in names:
                tensor = tensors.get_tensor(name)
                if not tensor.is_floating_point():
                    raise CheckpointError(f"{self.path}: {name} is {tensor.dtype}; weights must be floating point")
                # Always copy: mapped memory need not be aligned, and is gone once the file is closed.
                loaded[name] = tensor.to(device, dtype, copy=True)
        self._check_finite(loaded, dtype)
        return loaded

    def _check_finite(self, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        """Check the sums of the tensors: they are not finite if a value is not, and cost no more than one reading."""
        sums = {name: tensor.sum(dtype=torch.float32) for name, tensor in tensors.items()}
        if sums and not torch.stack(list(sums.values())).isfinite().all():  # waits for the GPU once
            bad = [name for name, value in sums.items() if not value.isfinite()]
            raise CheckpointError(f"{self.path}: as {dtype}, these have values that are not finite: {listed(bad)}")


class Embedding(nn.Embedding):
    """An embedding table that is not initialized on the meta device, as PyTorch would import its compiler for that.
    Its rows are given as `given`, None: as the table has them."""

    given: torch.dtype | None = None

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()

    def forward(self, ids: Tensor) -> Tensor:
        rows = super().forward(ids)
        return rows if self.given is None else rows.to(self.given)


def load_module(
    module: nn.Module,
    file: TensorFile,
    prefix: str,
    device: torch.device,
    dtype: torch.dtype,
    *,
    optional_unused: Collection[str] = (),
) -> None:
    """Give `module`, built on the meta device, every tensor of `file` whose name starts with `prefix`.

    `optional_unused` are names (without the prefix) that the file may have although the module does not. Raises
    CheckpointError with the names that are missing, left over or of a wrong shape.
    """
    check_tensors(module, file, prefix, optional_unused=optional_unused)
    wanted = module.state_dict().keys()
    tensors = file.load([prefix + name for name in wanted], device, dtype)
    module.load_state_dict({name: tensors[prefix + name] for name in wanted}, assign=True)
    module.requires_grad_(False).eval()


def check_tensors(module: nn.Module, file: TensorFile, prefix: str, *, optional_unused: Collection[str] = ()) -> None:
    """Raise CheckpointError unless `file` has exactly the tensors of `module` under `prefix`, shapes included."""
    expected = {prefix + name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    found = {name for name in file.names if name.startswith(prefix)}
    ignored = {prefix + name for name in optional_unused}
    problems = []
    if missing := sorted(expected.keys() - found):
        problems.append(f"missing: {listed(missing)}")
    if left_over := sorted(found - expected.keys() - ignored):
        problems.append(f"left over: {listed(left_over)}")
    wrong = [name for name in sorted(expected.keys() & found) if expected[name] != file.shape(name)]
    if wrong:
        both = [f"{name} is {list(file.shape(name))}, config says {list(expected[name])}" for name in wrong]
        problems.append(f"wrong shape: {listed(both)}")
    if problems:
        raise CheckpointError(f"{file.path} does not fit its config.json; {'; '.join(problems)}")


def init_random(module: nn.Module, device: torch.device, dtype: torch.dtype, seed: int) -> None:
    """Give a module, on the meta device or not, seeded random weights, scaled so that activations stay finite.

    Matrices and kernels keep the variance of their input, embeddings are small, norms are one, biases zero; the log
    parameters of SnakeBeta (alpha, beta) are zero as at the start of their training.
    """
    import torch._prims.rng_prims  # torch.Generator needs it, and where modules are deferred nobody has imported it

    generator = torch.Generator(device).manual_seed(seed)
    # `to_empty` would import PyTorch's compiler, which takes seconds. Tensors are made one after the other, because all
    # of them in float32 beside all of them as `dtype` would take three times as much memory as the module.
    module.load_state_dict(
        {name: _random(name, like, device, dtype, generator) for name, like in module.state_dict().items()},
        assign=True,
    )
    module.to(device, dtype).requires_grad_(False).eval()


def _random(name: str, like: Tensor, device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    tensor = torch.empty(like.shape, dtype=like.dtype, device=device)
    if not tensor.is_floating_point():
        return tensor.zero_()
    if tensor.ndim < 2:
        return tensor.fill_(0.0 if name.rpartition(".")[2] in ("bias", "alpha", "beta") else 1.0).to(dtype)
    std = 0.02 if "embed" in name else 1 / math.sqrt(math.prod(tensor.shape[1:]))
    return tensor.normal_(0.0, std, generator=generator).to(dtype)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        open_file(path).close()
        with safe_open(path, framework="pt", device="cpu") as tensors:
            yield tensors
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; a checkpoint folder in the published layout has it") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}") from error


def listed(names: list[str]) -> str:
    more = len(names) - MAX_NAMES_SHOWN
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
