"""Modules that are loaded when something of them is asked for, not already when they are imported."""

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

# By workers without a card: more than half of its import, and 34 MB. The meta device computes with the first one, as it
# does where kernels for a card are listed; without a card it only makes empty weights.
UNUSED_OF_TORCH = (
    "torch._meta_registrations",
    "torch._size_docs",
    "torch._storage_docs",
    "torch._tensor_docs",
    "torch.ao",
    "torch.distributions",
    "torch.export",
    "torch.masked",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch.optim",
    "torch.quantization",
    "torch.testing",
    "torch.utils.data",
    "cuda.bindings.runtime",  # where it is installed, torch imports it without a card, too
)


def defer(*names: str) -> None:
    """Load these modules, which have not been imported yet, when something of them is asked for."""
    sys.meta_path.insert(0, _Deferring(names))


class _Deferring(MetaPathFinder, Loader):
    """`importlib.util.LazyLoader` loads a module already when a second one imports it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._loaders: dict[str, Loader] = {}
        self._lock = threading.RLock()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in self._names else None
        if spec is not None and spec.loader is not None:
            self._loaders[fullname], spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Have an ordinary module made."""

    def exec_module(self, module: ModuleType) -> None:
        def load(name: str) -> Any:
            if name.startswith("__"):  # the import system and debuggers look for these in all modules
                raise AttributeError(name)
            with self._lock:
                if vars(module).pop("__getattr__", None):
                    self._loaders[module.__name__].exec_module(module)
            return getattr(module, name)

        module.__getattr__ = load  # type: ignore[method-assign]
