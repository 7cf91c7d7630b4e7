"""What an import brings along, seen in a fresh interpreter: contracts cannot tell a lazy import from an eager one."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "triton")


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in result.stdout.split()}


@pytest.mark.parametrize("module", ["service.server", "service.__main__", "engine"])
def test_the_service_process_never_imports_torch(module: str) -> None:
    assert modules_after(f"import {module}").isdisjoint(HEAVY)


@pytest.mark.parametrize("module", ["clients", "clients.cli", "clients.demo", "clients.bench.__main__"])
def test_clients_bring_no_server_along(module: str) -> None:
    assert modules_after(f"import {module}").isdisjoint({"engine", "service", "tokenizers", *HEAVY})


@pytest.mark.parametrize("module", ["engine.talker.process", "engine.code2wav.process"])
def test_workers_import_torch_only_once_they_run(module: str) -> None:
    """The service process imports these modules, to start their functions elsewhere."""
    assert modules_after(f"import {module}").isdisjoint({"grpc", *HEAVY})
