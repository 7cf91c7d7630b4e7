"""Whoever is told to install an extra can: it is one of the distribution that is named."""

import re
import tomllib
from pathlib import Path

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
