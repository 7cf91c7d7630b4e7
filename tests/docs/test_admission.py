"""Covers: the table of docs/admission.md names code that is there, and its layers are those of the text."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "admission.md").read_text(encoding="utf-8")


def test_every_row_names_code_that_is_there() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if re.match(r"\| \d ", line)]
    assert {row[1].split()[0] for row in rows} == {"1", "2", "3", "4"}
    for row in rows:
        folder = ""
        for name in re.findall(r"`([\w/]+\.py)`", row[6]):
            folder = name.rpartition("/")[0] or folder
            root, _, rest = f"{folder}/{name.rpartition('/')[2]}".partition("/")
            assert (ROOT / root / "sonorant" / root / rest).exists(), name
