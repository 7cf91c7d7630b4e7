"""`sonorant plan`: a known case, what follows from the formula, and files that it cannot use."""

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.cli.main import main, parser
from sonorant.cli.plan import EXAMPLES, FULL, plan, price_of_speech, streams_per_gpu

MEASURED = Path(__file__).parents[3] / "docs" / "benchmarks-h200.json"


def row(amount: int, underruns: float = 0.0, failed: int = 0, kind: str = "paced") -> dict[str, object]:
    return {"kind": kind, "amount": amount, "underruns": underruns, "failed": failed}


def test_ten_thousand_calls() -> None:
    planned = plan(10_000, 0.4, 1000)
    assert (planned.speakers, planned.gpus, planned.gpus_with_reserve) == (4152, 6, 7)
    assert round(planned.full_share, 3) == 0.692 and round(planned.share_without_one, 3) == 0.830
    assert price_of_speech(6, 2.0, 10_000, 0.4) == 0.003


@given(st.integers(1, 10**6), st.floats(0.01, 1), st.integers(1, 5000))
def test_there_is_room_with_all_gpus_and_with_one_failed(calls: int, share: float, streams: int) -> None:
    planned = plan(calls, share, streams)
    assert planned.gpus >= 2 and planned.speakers >= calls * share - 1e-6
    assert planned.full_share <= FULL + 1e-9 and planned.share_without_one <= 1
    assert planned.gpus_with_reserve >= planned.gpus
    assert plan(calls + 1, share, streams).gpus >= planned.gpus


def test_the_most_listeners_without_gaps() -> None:
    rows = [row(500), row(250), row(4, kind="closed"), row(1000, underruns=0.02), row(2000)]
    assert streams_per_gpu(rows) == 500
    assert streams_per_gpu([row(100, failed=1)]) == 0
    assert streams_per_gpu(json.loads(MEASURED.read_text())["summary"]) == 1000


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["plan", *map(str, arguments)])
    out, err = capsys.readouterr()
    return int(str(ended.value.code)), out, err


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    common = ("--calls", "10000", "--talk-share", "0.4", "--gpu-per-hour", "2")
    code, out, _ = said(capsys, "--bench", MEASURED, *common)
    assert code == 0
    for text in ("4152 at the same time", "1000 streams per GPU", "6: 69% full, 83% with", "7 to stay", "0.0030"):
        assert text in out
    assert said(capsys, "--streams-per-gpu", "1000", *common)[1] == out
    (tmp_path / "other.json").write_text("[]")
    code, _, err = said(capsys, "--bench", tmp_path / "other.json", *common)
    assert code == 1 and "is not a file that `sonorant bench --json` wrote" in err
    (tmp_path / "none.json").write_text('{"summary": []}')
    assert "measure with --paced" in said(capsys, "--bench", tmp_path / "none.json", *common)[2]
    assert said(capsys, "--streams-per-gpu", "1000", "--calls", "0")[0] == 2
    assert said(capsys, "--streams-per-gpu", "1000", "--calls", "9", "--talk-share", "2")[0] == 2


def test_the_examples_of_the_help_are_commands() -> None:
    examples = [shlex.split(line) for line in EXAMPLES.splitlines() if line.strip().startswith("sonorant ")]
    assert len(examples) == 3
    for example in examples:
        parser().parse_args(example[1:])
