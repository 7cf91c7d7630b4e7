"""The snippets of docs/moving.md and the tables of docs/gateway.md are the truth; stock clients run the rest of them in
environments of their own (tests/gateway/stock)."""

import asyncio
import os
import re
import sys
from pathlib import Path

from sonorant.gateway.settings import GatewayConfig
from tests.gateway.harness import gateway
from tests.service.fake_engine import FakeEngine

ROOT = Path(__file__).parents[2]
MOVING = (ROOT / "docs/moving.md").read_text(encoding="utf-8")
GATEWAY = (ROOT / "docs/gateway.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```([\w ]+)\n(.*?)^```$", MOVING, re.MULTILINE | re.DOTALL)


def test_every_snippet_is_run_somewhere() -> None:
    assert {language for language, _ in SNIPPETS} == {"python", "bash", "python pipecat", "python livekit"}


async def test_snippets_without_a_framework_run(tmp_path: Path) -> None:
    async with gateway(FakeEngine()) as door:
        address = door.url.removeprefix("http://")
        for language, text in SNIPPETS:
            if language not in ("python", "bash"):
                continue
            script = text.replace("HOST:8000", address)
            command = [sys.executable, "-c", script] if language == "python" else ["bash", "-euc", script]
            process = await asyncio.create_subprocess_exec(
                *command, cwd=tmp_path, env=dict(os.environ), stderr=asyncio.subprocess.PIPE
            )
            _, stderr = await process.communicate()
            assert process.returncode == 0, stderr.decode()
    for name in ("hello.wav", "hello-curl.wav"):
        assert (tmp_path / name).read_bytes()[:4] == b"RIFF", name


def test_links_lead_somewhere() -> None:
    for text in (MOVING, GATEWAY):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (ROOT / "docs" / target).exists(), target


def test_every_setting_is_told() -> None:
    for name in GatewayConfig.__dataclass_fields__:
        flag = {"servers": "--server", "cors_origins": "--cors-origin"}.get(name, f"--{name.replace('_', '-')}")
        assert flag in GATEWAY, flag
