"""The table of packages in docs/architecture.md is the truth, in both directions."""

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


def test_every_line_says_something() -> None:
    assert [path for path, says in listed_packages().items() if len(says) < 10] == []
