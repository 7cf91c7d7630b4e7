"""docs/requirements.md has every row, says something in each, and names only tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| ([A-Z]\d-\d\d|demand \d+|idea \d+) \| (.+?) \| (.+?) \| ?(.*?) ?\|$",
    (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
COUNTS = {"S0": 29, "S1": 14, "S2": 26, "S3": 26, "S4": 22}


def test_every_row_is_there_once_and_in_order() -> None:
    expected = [f"{section}-{n:02}" for section, count in COUNTS.items() for n in range(1, count + 1)]
    expected += [f"demand {n}" for n in range(1, 26)] + [f"idea {n}" for n in range(1, 16)]
    assert [row[0] for row in ROWS] == expected


def test_every_row_has_a_state_and_its_proof() -> None:
    assert {state for _, _, state, _ in ROWS} <= {"done", "partly", "open", "out"}
    assert [row_id for row_id, _, state, proof in ROWS if state != "open" and not proof.strip()] == []


def test_named_tests_exist() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    existing = set(re.findall(r"def (test_\w+)", sources))
    named = {name for *_, proof in ROWS for name in re.findall(r"`(test_\w+)`", proof)}
    assert sorted(named - existing) == []


def test_named_files_exist() -> None:
    named = {path for *_, proof in ROWS for path in re.findall(r"`((?:tests|clients|engine|service)/[\w/.]+)`", proof)}
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
