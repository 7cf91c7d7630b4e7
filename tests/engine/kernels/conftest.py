from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sonorant.engine.card.card import Card
from sonorant.engine.card.device import card_of


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def card() -> Card:
    """The GPU at hand, or the one that the environment pretends."""
    found = card_of(torch.device("cuda", torch.cuda.current_device()))
    assert found is not None
    return found


@pytest.fixture
def clusters(card: Card) -> None:
    if not (card.has_clusters and card.has_dependent_launch):
        pytest.skip(f"never chosen on {card.name}, which has no clusters")


@pytest.fixture
def hopper(card: Card, clusters: None) -> None:
    if not card.has_warpgroups or card.shared_bytes < Card.of("Hopper", (9, 0), 0).shared_bytes:
        pytest.skip(f"never chosen on {card.name}, which lacks what Hopper has")


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, dict[str, int]], bytes]:
    """Compiles a file of kernels with macros. It hardly optimizes, which would take most of the time; what
    `make test-kernels` compiles is optimized."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC comes with the CUDA builds of torch, and with `dev`")
    from sonorant.engine.kernels import cuda_code

    compile_with = cuda_code._compile
    monkeypatch.setattr(
        cuda_code,
        "_compile",
        lambda source, file, headers, options: compile_with(source, file, headers, [*options, "--Ofast-compile=max"]),
    )
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return lambda file, macros: cuda_code.compiled(file, macros, "sm_90a")
