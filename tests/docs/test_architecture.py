"""The file list of docs/architecture.md is the truth, in both directions."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def listed_files() -> dict[str, str]:
    listing = TEXT.split("## Files")[1].split("```")[1]
    return dict(re.findall(r"^(\S+\.(?:py|proto)) +(\S.*)$", listing, re.MULTILINE))


def source_files() -> set[str]:
    """Every module with something in it, and every proto; the generated stubs are one line of the list."""
    modules = [path for package in ("service", "engine", "clients") for path in (ROOT / package).rglob("*.py")]
    modules += (ROOT / "proto").glob("*.py")
    protos = (ROOT / "proto").rglob("*.proto")
    return {path.relative_to(ROOT).as_posix() for path in [*modules, *protos] if path.stat().st_size}


def test_every_source_file_is_listed() -> None:
    assert sorted(source_files() - set(listed_files())) == [], "each needs a line in docs/architecture.md"


def test_every_listed_file_exists() -> None:
    assert [path for path in listed_files() if not (ROOT / path).exists()] == []


def test_every_line_says_something() -> None:
    assert [path for path, says in listed_files().items() if len(says) < 10] == []
