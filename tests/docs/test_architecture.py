"""The packages in docs/architecture.md are those there are, in both directions, and its methods and files exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOPS = ("service", "engine", "clients", "proto")
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def listed_packages() -> dict[str, str]:
    packages = TEXT.split("## Packages")[1]
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", packages, re.MULTILINE))


def source_packages() -> set[str]:
    """Every folder below a source root that has code of ours in it."""
    files = [
        path for top in ("service", "engine", "clients", "proto") for path in (ROOT / top).rglob("sonorant/**/*.py")
    ]
    return {path.parent.relative_to(ROOT).as_posix() for path in files if path.stat().st_size}


def test_every_package_is_listed() -> None:
    assert sorted(source_packages() - set(listed_packages())) == [], "each needs a line in docs/architecture.md"


def test_every_listed_package_exists() -> None:
    assert [path for path in listed_packages() if not (ROOT / path).is_dir()] == []


def members() -> dict[str, set[str]]:
    """The names of every class's methods, and of the attributes that they use."""
    found: dict[str, set[str]] = {}
    for top in ("service", "engine", "clients"):
        for path in (ROOT / top / "sonorant").rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    inner = list(ast.walk(node))
                    names = {each.name for each in inner if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                    names |= {each.attr for each in inner if isinstance(each, ast.Attribute)}
                    found.setdefault(node.name, set()).update(names)
    return found


def test_every_method_that_is_named_exists() -> None:
    known = members()
    named = re.findall(r"`([A-Z]\w+)\.(\w+)", TEXT)
    assert len(named) > 30
    assert [f"{name}.{member}" for name, member in named if member not in known.get(name, set())] == []


def test_every_file_that_is_named_exists() -> None:
    files = {path.as_posix() for top in TOPS for path in (ROOT / top).rglob("*.py")}
    named = set(re.findall(r"`([\w/]+/\w+\.py)`", TEXT))
    assert len(named) > 20
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in files)] == []
