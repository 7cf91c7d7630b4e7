"""What MkDocs is to add to the pages of docs/: those of the repository's root, and the two references.

The pages themselves are written for the repository: their links lead to its files. Here such links lead to the page of
the site, if there is one, and else are left as text.
"""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import grpc_reference  # noqa: E402
import python_reference  # noqa: E402

PAGES = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
FOLDERS = {"proto/sonorant/tts/v1": "reference/grpc.md"}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference/grpc.md", content=grpc_reference.page()))
    files.append(File.generated(config, "reference/python.md", content=python_reference.page()))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: object) -> str:
    here = page.file.src_uri
    if here.startswith("reference/"):
        return markdown
    folder = ROOT if here in PAGES.values() else ROOT / "docs"

    def moved(match: re.Match[str]) -> str:
        text, link, anchor = match.groups()
        target = _page_of((folder / link).resolve())
        if target is None or files.get_file_from_path(target) is None:
            return text
        return f"[{text}]({target}{anchor or ''})"

    markdown = re.sub(r"^```(\w+) .*$", r"```\1", markdown, flags=re.MULTILINE)  # what tests say of a snippet
    return LINK.sub(moved, markdown)


def _page_of(path: Path) -> str | None:
    """Return the page of the site that shows a file or folder of the repository, if there is one."""
    if not path.is_relative_to(ROOT):
        return None
    name = str(path.relative_to(ROOT))
    return PAGES.get(name) or FOLDERS.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else None)
