"""The source files of the programs."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def sources() -> Iterator[tuple[Path, str]]:
    """All but tests and training."""
    for folder in ("proto", "service", "engine", "clients"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "_pb2" not in path.name and "training" not in path.parts:
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
