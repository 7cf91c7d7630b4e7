"""Whoever is told to install an extra can: it is one of the distribution that is named."""

import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = {
    name: set(tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for name, folder in (("sonorant", "clients"), ("sonorant-server", ""))
}


def test_every_extra_that_is_named_exists() -> None:
    places = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "Dockerfile"]
    places += [path for top in ("clients", "service", "engine", "deploy") for path in (ROOT / top).rglob("*.py")]
    named = [
        (path.name, name, extra)
        for path in places
        for name, extras in re.findall(r"\b(sonorant(?:-server)?)\[([a-z,]+)\]", path.read_text(encoding="utf-8"))
        for extra in extras.split(",")
    ]
    assert len(named) > 10
    assert [each for each in named if each[2] not in EXTRAS[each[1]]] == []


# Modules that are imported where their extra is wanted, and say what to install.
BEHIND_AN_EXTRA = {"asr/sphinx.py": "asr", "bench/http_speech.py": "bench", "bench/reporting/plots.py": "bench"}
FRAMEWORKS = {"livekit", "pipecat"}
OF_THE_CLIENT = {"google", "grpc", "grpc_health", "grpc_status", "sonorant"}


def test_commands_of_the_client_start_with_what_the_client_installs() -> None:
    """In the environment of this test everything is there."""
    package = ROOT / "clients" / "sonorant"
    project = tomllib.loads((ROOT / "clients" / "pyproject.toml").read_text())["project"]
    for path in package.rglob("*.py"):
        name = path.relative_to(package)
        if name.parts[0] in FRAMEWORKS:
            continue
        extra = project["optional-dependencies"].get(BEHIND_AN_EXTRA.get(name.as_posix(), ""), [])
        allowed = OF_THE_CLIENT | {re.split(r"\W", each)[0] for each in extra} | sys.stdlib_module_names
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                assert module.partition(".")[0] in allowed, f"{name} needs {module} from the start"


def test_a_gateway_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for name in [name for name in sys.modules if name.startswith("sonorant.gateway")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit, match=r"aiohttp is not installed: pip install 'sonorant-server\[gateway\]'"):
        importlib.import_module("sonorant.gateway.__main__").main()
