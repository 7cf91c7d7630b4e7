"""`sonorant bench` as its users meet it, on a server with the built-in voice."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sonorant.bench.command import over_limit_notes
from sonorant.bench.loads import Load
from sonorant.cli.main import parser
from tests.e2e.server_process import ServerProcess
from tests.service.certificates import Certificates
from tests.service.keys import ADA, BOB, table

LOADS = (
    "--closed",
    "1",
    "2",
    "--open",
    "4",
    "--paced",
    "2",
    "--frames",
    "6",
    "--seconds",
    "2",
    "--warm-up-s",
    "0.5",
    "--paced-seconds",
    "5",
)
ENVIRONMENT = {**os.environ, "SONORANT_CLIENT_COMMIT": "c0ffee"}


async def bench(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sonorant.bench", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT,
    )
    stdout, stderr = await process.communicate()
    assert process.returncode is not None
    return process.returncode, stdout.decode(), stderr.decode()


@pytest.mark.slow
@pytest.mark.rare
async def test_all_loads_measured_compared_and_plotted(server: ServerProcess, tmp_path: Path) -> None:
    path, picture = tmp_path / "one.json", tmp_path / "one.png"
    output = ("--json", str(path), "--plot", str(picture))
    status, table, log = await bench("--server", server.address, *LOADS, "--repeats", "2", "--processes", "2", *output)
    assert status == 0, table + log
    assert [line.split("  ")[0] for line in table.splitlines()[1:5]] == ["closed 1", "closed 2", "open 4/s", "paced 2"]
    assert "least/median/most of 2 repeats" in table
    assert "closed 1, mean ms to the first audio: " in table
    assert picture.read_bytes().startswith(b"\x89PNG")

    result: dict[str, Any] = json.loads(path.read_text())
    assert result["commit"] == "c0ffee" and result["cpu"] and result["versions"]["grpcio"]
    assert result["servers"][0]["model"] == "builtin_voice"
    assert len(result["runs"]) == 8 and len(result["summary"]) == 4
    for row in result["summary"]:
        assert row["failed"] == 0 and row["ok"] > 0
        least, median, most = row["spread"]["ttfa_ms_p50"]
        assert 0 < least <= median <= most
    closed, _, _, paced = result["runs"][:4]
    assert closed["mean_audio_s"] == pytest.approx(0.48)
    assert paced["ok"] == 2 and paced["seconds"] == 5
    assert closed["client"]["processes"] == 1 and paced["client"]["processes"] == 2

    status, table, _ = await bench("--compare", str(path), str(path))
    assert table.count("closed 1 ") == 2 and status == 0


async def test_texts_that_the_server_does_not_speak_are_refused(server: ServerProcess) -> None:
    status, _, log = await bench("--server", server.address, "--text-language", "chinese")
    assert status == 1 and "does not speak chinese; it speaks english" in log


@pytest.mark.slow
async def test_callers_share_keys_and_call_with_tls(tmp_path: Path) -> None:
    """Each key has one session at a time here, so two speakers with one key would be refused."""
    Certificates(tmp_path)
    names = {"ada": ADA, "bob": BOB}
    (tmp_path / "keys.toml").write_text("".join(table(name, key, "max_sessions = 1") for name, key in names.items()))
    (tmp_path / "keys").write_text("\n".join(names.values()))
    tls = ("--tls-certificate", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    with ServerProcess(tmp_path / "log", "--api-keys", str(tmp_path / "keys.toml"), *tls) as secured:
        caller = ("--server", secured.address, "--tls-ca", str(tmp_path / "ca.pem"))
        load = ("--paced", "2", "--paced-seconds", "2", "--warm-up-s", "0.5", "--frames", "6", "--processes", "2")
        status, printed, log = await bench(*caller, *load, "--keys", str(tmp_path / "keys"))
        assert status == 0, printed + log
        status, _, log = await bench(*caller, *load)
        assert status == 1 and "an API key is needed" in log


async def test_without_a_server_there_is_one_line_of_error() -> None:
    status, table, log = await bench("--server", "127.0.0.1:9", "--seconds", "1")
    assert status == 1 and table == "" and len(log.splitlines()) == 1 and "127.0.0.1:9" in log


async def test_arguments_that_exclude_each_other_are_refused_at_once() -> None:
    status, _, log = await bench("--openai", "http://127.0.0.1:9/v1", "--openai-by", "cartesia", "--paced", "2")
    assert status == 1 and "--paced needs a pace" in log
    status, _, log = await bench("--server", "127.0.0.1:9", "--paced", "2", "--max-lead-ms", "0")
    assert status == 1 and "--paced needs a pace" in log
    status, _, log = await bench("--server", "127.0.0.1:9", "--rpc", "synthesize-stream", "--words-per-s", "3")
    assert status == 1 and "--words-per-s" in log


def test_a_load_over_the_limits_of_the_server_is_noted_first() -> None:
    limits = {"max_sessions": 100, "max_streams": 64}
    loads = [Load("closed", 64, 1.0, 1.0), Load("paced", 80, 1.0, 1.0), Load("open", 1000, 1.0, 1.0)]
    (note,) = over_limit_notes(loads, limits)
    assert note.startswith("paced 80 is more than the 64 streams (--num-slots")
    assert over_limit_notes(loads, {"model": "of another server"}) == []


@pytest.mark.parametrize("arguments", ["--closed 0", "--open 0", "--seconds -1", "--open nan", "--openai-body []"])
def test_wrong_numbers_are_refused(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parser().parse_args(["bench", *arguments.split()])
    assert exit_.value.code == 2
    assert arguments.split()[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--json /none/x.json", "/none is not a folder, x.json cannot be written there"),
        ("--plot /none/x.png", "/none is not a folder"),
        ("--plot x.png", "--plot needs matplotlib"),
        ("--compare /dev/null", "/dev/null was not written by --json"),
    ],
)
async def test_outputs_that_cannot_be_written_are_refused_before_the_measurement(
    arguments: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    args = parser().parse_args(["bench", *arguments.split()])
    with pytest.raises(ValueError, match=re.escape(says)):
        await args.run(args)
