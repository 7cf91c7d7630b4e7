"""`python -m sonorant.asr` against the real server: hypotheses, and a recording, become speech."""

import asyncio
import json
import re
import sys
import wave
from pathlib import Path

import pytest

from sonorant.client.client import SpeechClient
from sonorant.client.configs import synthesis_config
from tests.e2e.server_process import ServerProcess


async def asr(server: ServerProcess, out: Path, *arguments: str, stdin: str = "") -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sonorant.asr", "--server", server.address, "--out", str(out), *arguments),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return process.returncode, stderr.decode()


def duration_s(path: Path) -> float:
    with wave.open(str(path)) as file:
        return file.getnframes() / file.getframerate()


async def test_hypotheses_become_the_speech_of_their_final_text(server: ServerProcess, tmp_path: Path) -> None:
    messages = [
        {"partial": "good", "time_ms": 300},
        {"partial": "good moaning", "time_ms": 600},
        {"partial": "good morning to", "stability": 0.9, "time_ms": 900},
        {"final": "good morning to you", "time_ms": 1200},
        {"text": ""},
        {"results": [{"alternatives": [{"transcript": "How are you?"}], "isFinal": True}]},
    ]
    lines = "\n".join(map(json.dumps, messages))
    status, stderr = await asr(server, tmp_path / "out.wav", "--seed", "7", stdin=lines)
    assert status == 0, stderr
    assert "    0.90 s  good morning\n    1.20 s  to you\n" in stderr
    assert "words  7 spoken, 0 (0.0%)" in stderr
    expected_s = 0.0
    async with SpeechClient(server.address) as client:
        for text in ("good morning to you", "How are you?"):
            async with client.speak(synthesis_config(seed=7), max_lead_ms=0) as session:
                await session.send_text(text)
                await session.finish()
                async for event in session:
                    expected_s += getattr(event.payload, "num_samples", 0) / 24_000
    assert duration_s(tmp_path / "out.wav") == pytest.approx(expected_s)


@pytest.mark.slow
async def test_a_recording_is_recognized_and_spoken_again(server: ServerProcess, tmp_path: Path) -> None:
    pytest.importorskip("pocketsphinx")
    async with SpeechClient(server.address) as client:
        config = synthesis_config(encoding="wav", seed=7)
        clip = await client.synthesize("Good morning. The house is by the river.", config)
    (tmp_path / "in.wav").write_bytes(clip.audio)
    status, stderr = await asr(server, tmp_path / "out.wav", "--wav", str(tmp_path / "in.wav"))
    assert status == 0, stderr
    found = re.search(r"words  (\d+) spoken, 0 .*\ndelay  (\d+) ms added per word", stderr)
    assert found and int(found[1]) >= 4 and int(found[2]) < 2000, stderr
    assert duration_s(tmp_path / "out.wav") > 0.5


async def test_what_is_no_recording_is_refused_by_name(server: ServerProcess, tmp_path: Path) -> None:
    pytest.importorskip("pocketsphinx")
    (tmp_path / "text.wav").write_text("Good morning.")
    status, stderr = await asr(server, tmp_path / "out.wav", "--wav", str(tmp_path / "text.wav"))
    assert status == 1
    assert stderr.startswith(f"asr: {tmp_path}/text.wav cannot be read: Format not recognised")
    assert await asr(server, tmp_path / "out.wav", "--wav", "/none.wav") == (
        1,
        "asr: /none.wav: No such file or directory\n",
    )


async def test_what_is_no_hypothesis_is_refused_with_its_line(server: ServerProcess, tmp_path: Path) -> None:
    status, stderr = await asr(server, tmp_path / "out.wav", stdin='{"partial": "a"}\n\n{"b": 1}\n')
    assert status == 1
    assert stderr.startswith("asr: line 3 of stdin: found b; one of these is needed: ")


async def test_nothing_recognized_is_no_success(server: ServerProcess, tmp_path: Path) -> None:
    assert await asr(server, tmp_path / "out.wav") == (1, "nothing was recognized\n")


async def test_a_draft_is_spoken_and_corrected(server: ServerProcess, tmp_path: Path) -> None:
    messages = [
        {"partial": "good moaning"},
        {"partial": "good moaning two all of"},
        {"partial": "good morning to all of you"},
        {"final": "good morning to all of you"},
        {"partial": "how are you"},
    ]
    lines = "\n".join(map(json.dumps, messages))
    status, stderr = await asr(server, tmp_path / "out.wav", "--revise", "--agreement", "1", "--seed", "7", stdin=lines)
    assert status == 0, stderr
    assert "words  9 spoken" in stderr, "the last ones, too, although no final hypothesis came for them"
    assert re.search(r"TTFA   \d+ ms", stderr), (
        "counted from the first text, which a draft sends long before it is final"
    )
    assert duration_s(tmp_path / "out.wav") > 1
