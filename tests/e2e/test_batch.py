"""`sonorant say --out-dir` makes a file of each piece of a text, and goes on where it was stopped."""

import os
import pty
import re
import signal
import subprocess
import sys
import wave
from contextlib import suppress
from pathlib import Path

import av
import numpy as np
import pytest

from sonorant.cli.finished import finished_in
from sonorant.client.sync import SpeechClient, synthesis_config
from sonorant.training.evaluation.sentences import everyday_sentences
from tests.e2e.server_process import ServerProcess
from tests.service.harness import assert_same_audio

LINES = ["The river was cold.", "Nobody was there.", "They left at noon."]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines.txt"
    file.write_text(f"{LINES[0]}\n\n***\n{LINES[1]}\n{LINES[2]}\n")
    return file


def begin(server: ServerProcess, *arguments: object) -> "subprocess.Popen[str]":
    command = ["-m", "sonorant.cli", "say", "--server", server.address, "--seed", "5", *map(str, arguments)]
    return subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)


def say(server: ServerProcess, *arguments: object) -> tuple[int, str]:
    with begin(server, *arguments) as process:
        _, told = process.communicate(timeout=120)
    return process.returncode, told


def samples(file: Path) -> bytes:
    with wave.open(str(file)) as opened:
        return opened.readframes(opened.getnframes())


def test_a_job_that_was_killed_goes_on_and_makes_no_file_twice(
    server: ServerProcess, lines: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job = ("--file", lines, "--out-dir", out, "--subtitles", "srt", "--at-once", 1)
    with begin(server, *job) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGKILL)
    assert first.startswith("1 of 3  00001.wav")
    made = {file.name: file.stat().st_mtime_ns for file in out.glob("0000?.wav")}
    (out / "00003.part.wav").write_bytes(b"left behind")
    status, told = say(server, *job)
    assert status == 0 and f"{len(made)} of 3 files are finished already" in told
    assert sorted(file.name for file in out.iterdir()) == [
        *("00001.srt", "00001.wav", "00002.srt", "00002.wav", "00003.srt", "00003.wav"),
        "finished.jsonl",
    ]
    assert all((out / name).stat().st_mtime_ns == time_ns for name, time_ns in made.items())
    with SpeechClient(server.address) as client:
        for number, line in enumerate(LINES, 1):
            clip = client.synthesize(line, synthesis_config(seed=5))
            assert_same_audio(samples(out / f"{number:05}.wav"), clip.audio)
            assert line in (out / f"{number:05}.srt").read_text().replace("\n", " ")
    assert say(server, *job) == (0, "3 of 3 files are finished already\n")


def test_an_impatient_ctrl_c_leaves_no_traceback(server: ServerProcess, lines: Path, tmp_path: Path) -> None:
    with begin(server, "--file", lines, "--out-dir", tmp_path / "out", "--at-once", 1) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 130


@pytest.mark.slow
def test_no_file_is_replaced_without_being_told(server: ServerProcess, lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "00002.wav").write_bytes(b"mine")
    job = ("--file", lines, "--out-dir", out)
    status, told = say(server, *job)
    assert status == 1 and f"{out}/00002.wav exists and was not made from this text" in told
    assert [file.name for file in out.glob("*.wav")] == ["00002.wav"] and (out / "00002.wav").read_bytes() == b"mine"
    assert (say(server, *job, "--overwrite"))[0] == 0
    before = samples(out / "00001.wav")
    lines.write_text("\n".join(["Something else.", *LINES[1:]]))
    status, told = say(server, *job)
    assert status == 1 and "00001.wav exists" in told and samples(out / "00001.wav") == before
    assert (say(server, *job, "--overwrite"))[0] == 0
    assert samples(out / "00001.wav") != before
    with finished_in(out):
        status, told = say(server, *job)
    assert status == 1 and "another sonorant say writes into" in told


@pytest.mark.slow
def test_all_formats_have_the_same_sound(server: ServerProcess, lines: Path, tmp_path: Path) -> None:
    loudness = {}
    for name in ("wav", "mp3", "opus", "flac"):
        job = ("--file", lines, "--out-dir", tmp_path / name, "--format", name, "--each", "chapter")
        status, told = say(server, *job)
        assert status == 0 and told.startswith(f"1 of 1  00001.{name}  "), told
        with av.open(str(tmp_path / name / f"00001.{name}")) as file:
            sound = np.concatenate([frame.to_ndarray().ravel() for frame in file.decode(audio=0)]).astype(float)
            rate_hz = file.streams.audio[0].rate
        scale = 32_768 if np.abs(sound).max() > 1 else 1
        loudness[name] = (len(sound) / rate_hz, float(np.sqrt(np.mean((sound / scale) ** 2))))
    for length_s, level in loudness.values():
        assert length_s == pytest.approx(loudness["wav"][0], abs=0.15)
        assert level == pytest.approx(loudness["wav"][1], rel=0.15)


def test_what_cannot_be_spoken_is_told_with_its_line_and_the_rest_is_spoken(
    server: ServerProcess, lines: Path, tmp_path: Path
) -> None:
    lines.write_text("Hello.\nBad \x07 bell.\nGood bye.\n")
    status, told = say(server, "--file", lines, "--out-dir", tmp_path / "out")
    assert status == 1
    assert f"{lines}, line 2: 00002.wav was not made: " in told and "1 of 3 files were not made" in told
    assert sorted(file.name for file in (tmp_path / "out").glob("*.wav")) == ["00001.wav", "00003.wav"]
    status, told = say(server, "--file", lines, "--out-dir", tmp_path / "out2", "--voice", "nobody")
    assert status == 1 and "nobody" in told and not list((tmp_path / "out2").glob("*.wav"))


def on_a_terminal(server: ServerProcess, *arguments: object) -> str:
    """Return all that was written to it."""
    ours, its = pty.openpty()
    command = ["-m", "sonorant.cli", "say", "--server", server.address, *map(str, arguments)]
    told = bytearray()
    with subprocess.Popen([sys.executable, *command], stderr=its) as process:
        os.close(its)
        with suppress(OSError):  # nobody writes there any more
            while more := os.read(ours, 4096):
                told += more
    os.close(ours)
    assert process.returncode == 0, told
    return told.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("where", [("--wav", "one.wav"), ("--out-dir", "out", "--each", "chapter")])
def test_a_terminal_shows_how_far_a_book_is(server: ServerProcess, tmp_path: Path, where: tuple[str, ...]) -> None:
    book = tmp_path / "book.txt"
    book.write_text("# One\n\n" + " ".join(everyday_sentences()[:8]) + "\n\n# Two\n\n" + " ".join(LINES))
    told = on_a_terminal(server, "--file", book, where[0], tmp_path / where[1], *where[2:])
    shares = [int(share) for share in re.findall(r"\[#* *\] +(\d+)%", told)]
    assert shares == sorted(shares) and len(set(shares)) > 4 and shares[-1] > 80
    lines = [re.sub(r".*\r\x1b\[K", "", line) for line in told.split("\n")]
    assert not any("[" in line for line in lines), "the bar goes, and no other line is cut"
    assert [line for line in lines if line][-1].startswith("2 of 2  " if "--out-dir" in where else "audio  ")


@pytest.mark.slow
def test_chapters_of_many_segments_have_subtitles_over_all_of_them(server: ServerProcess, tmp_path: Path) -> None:
    chapters = [" ".join(everyday_sentences()[:8]), " ".join(LINES)]
    book = tmp_path / "book.txt"
    book.write_text("".join(f"Chapter {number}\n\n{text}\n\n" for number, text in enumerate(chapters, 1)))
    out = tmp_path / "out"
    assert say(server, "--file", book, "--out-dir", out, "--each", "chapter", "--subtitles", "vtt")[0] == 0
    for number, text in enumerate(chapters, 1):
        times, shown = list[str](), list[str]()
        for block in (out / f"{number:05}.vtt").read_text().strip().split("\n\n")[1:]:
            time, caption = block.split("\n")
            times += time.split(" --> ")
            shown.append(caption)
        assert " ".join(shown) == f"Chapter {number} {text}"
        assert times == sorted(times) and times[-1].startswith("00:00:")
        with wave.open(str(out / f"{number:05}.wav")) as file:
            length_s = file.getnframes() / file.getframerate()
        assert length_s - 1.5 < float(times[-1][6:]) <= length_s + 0.001
