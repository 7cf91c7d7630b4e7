"""Files, pipes and players get every byte."""

import io
import os
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from sonorant.client.listening import audio_out

PCM = bytes(range(200)) * 5


async def test_wav_file_has_a_correct_header(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    async with audio_out.wav_file(path, 24000) as write:
        write(PCM[:300])
        write(PCM[300:])
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        assert file.readframes(file.getnframes()) == PCM


async def test_raw_file_has_the_bytes(tmp_path: Path) -> None:
    async with audio_out.raw_file(tmp_path / "out.ogg") as write:
        write(PCM[:300])
        write(PCM[300:])
    assert (tmp_path / "out.ogg").read_bytes() == PCM


async def test_raw_stream_passes_bytes_on_at_once() -> None:
    stream = io.BytesIO()
    async with audio_out.raw_stream(stream) as write:
        write(PCM)
        assert stream.getvalue() == PCM


async def test_player_takes_everything_before_it_is_left(tmp_path: Path) -> None:
    copy = tmp_path / "played"
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"
    async with audio_out.player([sys.executable, "-c", program, str(copy)]) as write:
        for _ in range(100):
            write(PCM)
    assert copy.read_bytes() == PCM * 100


async def test_a_player_that_is_closed_early_does_not_hurt() -> None:
    async with audio_out.player([sys.executable, "-c", "pass"]) as write:
        for _ in range(100):
            write(PCM * 100)


@pytest.mark.parametrize(("program", "rate_argument"), [("ffplay", "24000"), ("aplay", "--rate=24000")])
def test_player_command_uses_an_installed_player(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, rate_argument: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert audio_out.player_command(24000) is None
    (tmp_path / program).touch(mode=0o755)
    command = audio_out.player_command(24000)
    assert command is not None and command[0].endswith(program) and rate_argument in command


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "pipe"])
def test_a_pipe_gets_a_wav_whose_header_has_no_lengths(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "pipe") if name == "pipe" else name
    program = (
        "import asyncio, pathlib\nfrom sonorant.client.listening import audio_out\n"
        "async def main():\n"
        f"    async with audio_out.output(24000, wav=pathlib.Path({path!r}), encoded=None, raw=None) as write:\n"
        "        write(b'abcd')\nasyncio.run(main())"
    )
    if name == "pipe":
        os.mkfifo(path)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        with open(path, "rb") if name == "pipe" else process.stdout as stream:
            data = stream.read()
        assert process.wait() == 0
    assert (data[:4], data[8:16], data[36:40], data[44:]) == (b"RIFF", b"WAVEfmt ", b"data", b"abcd")
    assert data[4:8] == data[40:44] == b"\xff" * 4
    assert not (tmp_path / "-").exists()
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
