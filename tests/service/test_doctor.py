"""`sonorant-server doctor` on a machine and a checkpoint that are well, and on some that are not."""

import io
import itertools
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.tools.doctor import Examined, Verdict, _speed
from sonorant.engine.tools.doctor import examine as engine_findings
from sonorant.service.access.api_keys import new_key
from sonorant.service.config import parse_args
from sonorant.service.doctor import _keys, _tls, _voices, run
from sonorant.service.owner import number_of
from sonorant.service.voices.folder import FILES
from sonorant.service.voices.sqlite_store import VoiceRegistry
from tests.service.certificates import Certificates
from tests.service.findings import finding_of
from tests.service.voice_values import ROOMY, about, file_of
from tests.tiny_checkpoint import write_tiny_checkpoint


def doctor(*settings: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code, and verdict and text by subject. What it looks at itself, it looks at in this process."""
    config = parse_args(list(settings), {})
    with redirect_stdout(io.StringIO()) as printed:
        code = run(config, number_of(config))
    return code, found_in(printed.getvalue())


def found_in(printed: str) -> dict[str, tuple[str, str]]:
    return {line[6:16].strip(): (line[:4].strip(), line[18:]) for line in printed.splitlines()}


@pytest.mark.slow
def test_a_good_checkpoint_speaks(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(new_key("a")[1] + new_key("b")[1])
    settings = ("--listen", "127.0.0.1:0", "--api-keys", str(tmp_path / "keys.toml"), "--device", "cpu")
    command = [sys.executable, "-m", "sonorant.service", "doctor", *settings]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert ended.returncode == 0, ended.stderr
    found = found_in(ended.stdout)
    assert {subject for subject, (verdict, _) in found.items() if verdict == "fail"} == set()
    assert list(found) == [
        "platform",
        "torch",
        "gpu",
        "compiler",
        "kernels",
        "mps",
        "sizes",
        "checkpoint",
        "memory",
        "speed",
        "rings",
        "processes",
        "standby",
        "grpc",
        "opus",
        "port",
        "tls",
        "api keys",
        "voices",
        "utterance",
    ]
    assert "all tensors are there" in found["checkpoint"][1]
    assert "RTF" in found["utterance"][1]
    assert found["processes"][1].startswith("one server process")
    assert found["kernels"][1].startswith("no GPU") and found["standby"][1].startswith("none: ")
    assert found["api keys"][1].startswith("2 in ")


def test_the_device_of_the_encoder_is_looked_at() -> None:
    config = EngineConfig.of(BUILTIN_VOICE_DIR, talker_device="cpu", code2wav_device="cpu", encoder_device="cuda:7")
    _, torch, gpu = itertools.islice(engine_findings(Examined([config])), 3)
    assert gpu.verdict is Verdict.FAIL and "'cuda:7' does not exist here" in gpu.text
    assert torch.verdict is Verdict.PASS or "finds none: " in torch.text
    _, torch, gpu = itertools.islice(engine_findings(Examined([config.but(encoder_device="cpu")])), 3)
    assert (torch.verdict, gpu.verdict) == (Verdict.PASS, Verdict.PASS)


@pytest.mark.slow
def test_a_published_checkpoint_is_told_how_many_listeners_this_cpu_bears() -> None:
    config = EngineConfig.of(
        PRESETS_DIR / "qwen3-tts-12hz-0.6b-base", load_format="dummy", talker_device="cpu", code2wav_device="cpu"
    )
    verdict, text = _speed(Examined([config.but(talker_weights="int8")]))
    assert re.search(r"a second of qwen3-tts-12hz-0.6b-base should take \d+\.\d s, .* \(reads \d+ GB/s;", text)
    assert (verdict is Verdict.WARN) == ("too long for a listener" in text)


def test_kept_voices_are_looked_through(tmp_path: Path) -> None:
    config = parse_args(["--voices-dir", str(tmp_path / "voices")], {})
    with closing(VoiceRegistry(tmp_path / "voices")) as registry:
        for seed in range(3):
            registry.add("ada", about(f"anna-{seed}"), file_of(seed), None, ROOMY)
    whole = finding_of(_voices, config)
    assert (whole.verdict, whole.text[:18]) == (Verdict.PASS, "3 of at most 10000")
    path = next((tmp_path / "voices" / FILES).iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    damaged = finding_of(_voices, config)
    assert damaged.verdict == Verdict.FAIL and "is damaged: its file was changed" in damaged.text
    (tmp_path / "file").write_text("")
    unusable = finding_of(_voices, parse_args(["--voices-dir", str(tmp_path / "file")], {}))
    assert unusable.verdict == Verdict.FAIL and "is not a folder" in unusable.text
    assert finding_of(_voices, parse_args([], {})).verdict == Verdict.PASS


def test_a_key_of_receipts_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short")
    finding = finding_of(_keys, parse_args(["--receipt-key-file", str(tmp_path / "secret")], {}))
    assert finding.verdict == Verdict.FAIL and "has at least 32" in finding.text


@pytest.mark.slow
def test_a_broken_checkpoint_and_all_else_that_is_wrong_is_told(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(BUILTIN_VOICE_DIR, model)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b'"talker.model.norm.weight"', b'"talker.model.norm.height"'))
    (tmp_path / "keys.toml").write_text("[a]\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, found = doctor(
            *("--model", str(model), "--listen", f"127.0.0.1:{taken.getsockname()[1]}"),
            *("--api-keys", str(tmp_path / "keys.toml"), "--talker-device", "cuda:7"),
            *("--tls-certificate", "missing.pem", "--tls-key", "missing.pem"),
        )
    assert code == 1
    for subject, hint in (
        ("torch", "finds none"),
        ("gpu", "cuda:7"),
        ("checkpoint", "talker.model.norm"),
        ("port", "--listen"),
        ("tls", "missing.pem"),
        ("api keys", "sha256"),
        ("utterance", "not tried"),
    ):
        assert found[subject][0] == "fail", found[subject]
        assert hint in found[subject][1]
    assert found["rings"][0] == "pass"


def test_what_does_not_fit_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    flags = ("--model", str(write_tiny_checkpoint(tmp_path / "base", "base")), "--num-pages", str(2**40))
    code, found = doctor("--model", "built-in", *flags, "--listen", "127.0.0.1:0", "--device", "cpu", "--mps", "true")
    assert code == 1
    assert (found["memory"][0], found["mps"][0]) == ("fail", "fail")
    assert "needed: use fewer worker pairs or num_pages" in found["memory"][1]
    assert "nvidia-cuda-mps-control is not installed" in found["mps"][1]
    assert found["rings"][1].startswith("6, ")
    assert found["utterance"][1] == "not tried, because of the faults above"


def test_an_open_port_without_tls_and_keys_is_worth_a_warning() -> None:
    config = parse_args(["--listen", "[::]:0"], {})
    assert (finding_of(_tls, config).verdict, finding_of(_keys, config).verdict) == (Verdict.WARN, Verdict.WARN)


def test_a_certificate_that_has_expired_is_a_fault(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    config = parse_args(["--tls-certificate", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")], {})
    assert finding_of(_tls, config).verdict == Verdict.PASS
    certificates.issue(not_after=datetime(2020, 1, 1, tzinfo=UTC))
    expired = finding_of(_tls, config)
    assert expired.verdict == Verdict.FAIL and "has expired" in expired.text
