"""docs/voices.md: every snippet runs, in its order, on a server with checkpoints of all tasks; every reason exists."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sonorant.client.local_server import local_server
from sonorant.service.config import parse_args
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "voices.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def _short_spoken(checkpoint: Path) -> Path:
    """Random weights go on for ever; these end after two seconds, and say the same each time."""
    path = checkpoint / "generation_config.json"
    wanted = {"max_new_tokens": 24, "do_sample": False, "subtalker_dosample": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | wanted))
    return checkpoint


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.timeout(360)  # three pairs of workers, an encoder and a dozen commands
async def test_every_snippet_runs(tmp_path: Path) -> None:
    for seed, name in enumerate(("anna", "ben")):
        t = np.arange(48_000) / 24_000
        noise = 0.05 * np.random.default_rng(seed).standard_normal(len(t))
        soundfile.write(tmp_path / f"{name}.wav", 0.3 * np.sin((1200 + 300 * seed) * t) + noise, 24_000)
    settings = ["--device", "cpu", "--voices-dir", str(tmp_path / "kept")]
    for task in ("base", "custom_voice", "voice_design"):
        settings += ["--model", str(_short_spoken(write_tiny_checkpoint(tmp_path / task, task, **QUICK)))]
    async with local_server(settings) as target:
        for language, text in SNIPPETS:
            if language == "console":
                continue
            if language == "python":
                command = [sys.executable, "-c", text.replace("127.0.0.1:50051", target)]
            else:
                assert language == "bash"
                script = re.sub(r"\bsonorant (\w+)", rf"sonorant \1 --server {target}", text)
                command = ["bash", "-euo", "pipefail", "-c", script]
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=tmp_path,
                env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await process.communicate()
            assert process.returncode == 0, f"{text}\n{output.decode()}"
    for name in ("hello.wav", "once.wav", "giant.wav", "duet.wav", "anna.voice"):
        assert (tmp_path / name).stat().st_size > 500, name


def test_the_server_s_settings_exist() -> None:
    (console,) = [text for language, text in SNIPPETS if language == "console"]
    flags = re.findall(r"--voices?-\S+|--max-voice\S+", TEXT.replace("`", " ").replace(",", " "))
    assert {"--voices-dir", "--max-voices", "--max-voice-bytes"} <= set(flags)
    assert parse_args(["--voices-dir", "x"], {}).voices_dir == Path("x") and "--voices-dir" in console


def test_reasons_are_those_of_the_code() -> None:
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", TEXT))
    source = "".join(path.read_text() for folder in ("service", "engine") for path in (ROOT / folder).rglob("*.py"))
    assert named and {reason for reason in named if f'"{reason}"' not in source} == set()
