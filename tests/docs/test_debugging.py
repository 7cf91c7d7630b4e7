"""The recipes of docs/debugging.md and docs/asr.md do what they say, with every tool that is installed."""

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from grpc_status import rpc_status

from sonorant.client import SpeechClient
from sonorant.tts.v1 import (
    explain_pb2,
    speak_pb2,
    text_to_speech_service_pb2,
    text_to_speech_service_pb2_grpc,
)
from tests.e2e.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}:{ROOT / 'node_modules' / '.bin'}"


def recipes(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


DEBUGGING = recipes("debugging.md")


def run(recipe: str, server: ServerProcess, folder: Path) -> str:
    script = recipe.replace("127.0.0.1:50051", server.address)
    script = re.sub(r"\b(sonorant \w+|python -m sonorant\.asr)", rf"\1 --server {server.address}", script)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": PATH, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"{recipe}\n{done.stdout}"
    return done.stdout


def test_our_own_commands(server: ServerProcess, tmp_path: Path) -> None:
    explained, traced = (run(recipe, server, tmp_path) for recipe in DEBUGGING if recipe.startswith("sonorant"))
    assert (
        'text      "Dr. Who paid one dollar and fifty cents in twenty twenty six."' in explained
        and '"prompt": [' in explained
    )
    lines = traced.splitlines()
    for pattern in (
        r" > \{\"config\":.*\"opening\": \{.*\"text\": \"Hello, world.\", \"end\": true",
        r" < headers .*x-request-id: ",
        r" < \{\"session\":",
        r" > half-close",
        r" < u1 \{\"started\":",
        r" < u1 \{\"audio\": \{.*\} \+ \d+ bytes",
        r" < u1 \{\"done\": .*\"firstAudioMs\": \d+",
        r" < trailers .*x-audio-ms: \d+",
    ):
        found = [index for index, line in enumerate(lines) if re.match(rf" *\d+\.\d ms {pattern}", line)]
        assert found, f"{pattern}\n{traced}"
        if "half-close" not in pattern:  # which may come on either side of `started`
            lines = lines[found[0] :]
    assert (tmp_path / "hello.wav").stat().st_size > 5000


@pytest.mark.parametrize("tool", ["buf", "grpcurl"])
def test_tools_of_others(tool: str, server: ServerProcess, tmp_path: Path) -> None:
    if shutil.which(tool, path=PATH) is None or shutil.which("jq") is None:
        pytest.skip(f"{tool} or jq is not installed")
    told = "\n".join(run(recipe, server, tmp_path) for recipe in DEBUGGING if f"{tool} " in recipe)
    assert "sonorant.tts.v1.TextToSpeechService" in told and "FINISH_REASON_COMPLETED" in told
    assert '"data"' not in told
    if tool == "buf":
        assert "FINISH_REASON_CANCELLED" in told
        assert (tmp_path / "buf.wav").read_bytes()[:4] == b"RIFF"
        assert (tmp_path / "buf.wav").stat().st_size > 5000
    else:
        assert "SERVING" in told and (tmp_path / "grpcurl.pcm").stat().st_size > 5000


@pytest.mark.parametrize("protocol", ["grpc-v1", "grpc-v1alpha"])
def test_both_versions_of_reflection(protocol: str, server: ServerProcess, tmp_path: Path) -> None:
    if shutil.which("buf", path=PATH) is None:
        pytest.skip("buf is not installed")
    recipe = next(each for each in DEBUGGING if "--list-methods" in each).splitlines()[1]
    assert '"model"' in run(f"{recipe} --reflect-protocol {protocol}", server, tmp_path)


def test_messages_of_the_recipes_fit_the_contract() -> None:
    """Also where the tools are not installed: every method exists and takes the messages it is given."""
    text = "\n".join(DEBUGGING)
    methods = text_to_speech_service_pb2.DESCRIPTOR.services_by_name["TextToSpeechService"].methods_by_name
    assert set(re.findall(r"sonorant\.tts\.v1\.TextToSpeechService/(\w+)", text)) <= set(methods)
    messages = re.findall(r"'(\{.*?\})'(?=[ ;)\n])", text)
    assert len(messages) == 13
    for message in messages:
        contract = explain_pb2.ExplainRequest() if f"'{message}' 127" in text else speak_pb2.SpeakRequest()
        if f"-d '{message}' \\" in text:
            contract = text_to_speech_service_pb2.SynthesizeRequest()
        json_format.Parse(message, contract)


def python_of(page: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(program)


def test_details_in_base64_are_read(server: ServerProcess, tmp_path: Path) -> None:
    """Written as buf writes them: each without padding."""
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as refused:
        stub = text_to_speech_service_pb2_grpc.TextToSpeechServiceStub(channel)
        request = text_to_speech_service_pb2.SynthesizeRequest(text="Hi", config={"speed": 9})
        stub.Synthesize(request, timeout=30)
    status = rpc_status.from_call(refused.value)
    details = [
        {"type": each.TypeName(), "value": base64.b64encode(each.value).decode().rstrip("=")} for each in status.details
    ]
    answer = {"code": "invalid_argument", "message": status.message, "details": details}
    (tmp_path / "refused.json").write_text(json.dumps(answer))
    done = subprocess.run(
        [sys.executable, "-c", python_of("debugging.md")], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert '"reason": "INVALID_FIELD"' in done.stdout and '"field": "config.speed"' in done.stdout


def test_the_program_for_a_recognizer_speaks(server: ServerProcess) -> None:
    program: dict[str, Any] = {}
    exec(python_of("asr.md"), program)
    heard = bytearray()

    async def lines() -> AsyncIterator[str]:
        yield '{"type": "Results", "is_final": false, "channel": {"alternatives": [{"transcript": "good"}]}}'
        yield '{"type": "Results", "is_final": true, "channel": {"alternatives": [{"transcript": "good morning"}]}}'

    async def interpret() -> None:
        async with SpeechClient(server.address) as client:
            await program["interpret"](client, lines(), heard.extend)

    asyncio.run(asyncio.wait_for(interpret(), 60))
    assert len(heard) > 24_000, "half a second of speech"


@pytest.mark.slow
def test_recognition(server: ServerProcess, tmp_path: Path) -> None:
    pytest.importorskip("pocketsphinx")
    (recipe,) = recipes("asr.md")
    run('sonorant say "Good morning. The house is by the river." --wav in.wav', server, tmp_path)
    told = run(recipe, server, tmp_path)
    assert "words  4 spoken" in told and "delay  " in told
    assert all((tmp_path / name).stat().st_size > 5000 for name in ("out.wav", "morning.wav"))
