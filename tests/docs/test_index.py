"""docs/index.md lists every page, and every link of every page leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "clients" / "README.md"]
LOGS = [*ROOT.glob("docs/log/*.md")]
COMMIT = re.compile(r"(?<![#\w/-])(?=[0-9a-f]*[a-f])(?=[a-f]*\d)[0-9a-f]{7,8}(?![\w-])")


def links(page: Path) -> list[str]:
    return re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))


def test_every_page_is_listed() -> None:
    listed = {(ROOT / "docs" / link).resolve() for link in links(ROOT / "docs" / "index.md")}
    assert {page for page in ROOT.glob("docs/*.md") if page.name != "index.md"} <= listed


@pytest.mark.parametrize("page", [*PAGES, *LOGS], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in links(page) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commits_are_named_in_the_log_alone(page: Path) -> None:
    """They say nothing to a reader of today's state."""
    assert COMMIT.findall(page.read_text(encoding="utf-8")) == []
