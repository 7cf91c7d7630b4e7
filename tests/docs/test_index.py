"""docs/index.md lists every page, and every link of every page leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "clients" / "README.md"]


def links(page: Path) -> list[str]:
    return re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))


def test_every_page_is_listed() -> None:
    listed = {(ROOT / "docs" / link).resolve() for link in links(ROOT / "docs" / "index.md")}
    assert {page for page in ROOT.glob("docs/*.md") if page.name != "index.md"} <= listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in links(page) if not (page.parent / link).exists()] == []
