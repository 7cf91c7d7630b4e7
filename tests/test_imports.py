"""What an import brings along, seen in a fresh interpreter: contracts cannot tell a lazy import from an eager one."""

import re
import subprocess
import sys

import pytest

from tests._support import ROOT

HEAVY = ("torch", "transformers", "triton")


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize("module", ["sonorant.service.server", "sonorant.service.command", "sonorant.engine"])
def test_the_service_process_never_imports_torch(module: str) -> None:
    assert modules_after(f"import {module}").isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "module", ["sonorant.client", "sonorant.cli.main", "sonorant.cli.demonstration", "sonorant.bench.__main__"]
)
def test_clients_bring_no_server_along(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert loaded.isdisjoint({"numpy", "sonorant.engine", "sonorant.service", "tokenizers", *HEAVY})


def test_the_gateway_brings_no_server_along() -> None:
    loaded = modules_after("import sonorant.gateway.main")
    assert loaded.isdisjoint({"sonorant.engine", "sonorant.service", "tokenizers", *HEAVY})


@pytest.mark.parametrize("module", ["sonorant.engine.talker.process", "sonorant.engine.code2wav.process"])
def test_workers_import_torch_only_once_they_run(module: str) -> None:
    """The service process imports these modules, to start their functions elsewhere."""
    assert modules_after(f"import {module}").isdisjoint({"grpc", *HEAVY})


def test_no_test_brings_another_along() -> None:
    """What several files need is in a module that is no test: `_support.py` of their folder, mostly."""
    imports = re.compile(r"^ *(?:from|import) tests\.(?:\w+\.)*test_\w+", re.MULTILINE)
    files = [path for path in (ROOT / "tests").rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))]
    assert files == []
