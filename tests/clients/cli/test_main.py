"""The `sonorant` command as its users meet it: a process with arguments, stdin, stdout, stderr and an exit status."""

import asyncio
import os
import shlex
import signal
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.cli import decode, say, voices
from sonorant.cli import main as cli
from sonorant.client import __version__
from sonorant.gateway.settings import parse_args as gateway_settings
from sonorant.service.config import parse_args as server_settings
from sonorant.tts.v1.audio_pb2 import AUDIO_ENCODING_MULAW, AUDIO_ENCODING_OGG_OPUS, AudioFormat
from sonorant.tts.v1.speak_pb2 import COMMIT_MODE_SENTENCE, SpeakRequest, SpeakResponse, TextPolicy
from sonorant.tts.v1.synthesis_pb2 import PRIORITY_BATCH, TEXT_FORMAT_MARKDOWN, Mark, Marks, Sampling, Scheduling
from tests.clients.cli._support import sonorant, start
from tests.clients.scripted_server import LOUD, Speech, scripted_server
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served

NO_PLAYER = {**os.environ, "PATH": "/nonexistent"}


async def test_say_writes_a_wav_file_and_reports(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    async with scripted_server() as (target, speech):
        status, stdout, stderr = await sonorant("say", "four", "--server", target, "--wav", str(path), "--seed", "7")
    assert (status, stdout) == (0, b"")
    with wave.open(str(path)) as file:
        assert file.readframes(100) == LOUD * 4 and file.getframerate() == 24000
    for line in (
        "voice anna, seed 7",
        "TTFA   ",
        "RTF    ",
        "0.500 at the server",
        "gaps   0",
        "audio  0.00 s, completed",
    ):
        assert line in stderr
    config = speech.received[0].config
    assert config.synthesis.sampling.seed == 7 and config.max_lead_ms == 0
    assert config.idle_timeout_ms == 3_600_000, "who writes the text may pause for minutes"


async def test_say_writes_an_ogg_file_as_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "out.ogg"
    async with scripted_server() as (target, speech):
        status, _, stderr = await sonorant("say", "four", "--server", target, "--ogg", str(path))
    assert status == 0, stderr
    assert path.read_bytes() == LOUD * 4
    config = speech.received[0].config
    assert config.synthesis.audio == AudioFormat(encoding=AUDIO_ENCODING_OGG_OPUS) and config.max_lead_ms == 0
    assert "to the first sound" not in stderr, "compressed bytes are no samples"


async def test_every_setting_reaches_the_server() -> None:
    async with scripted_server() as (target, speech):
        flags = ["--temperature", "0.5", "--top-k", "0", "--top-p", "0.5", "--repetition-penalty", "1.5", "--seed", "1"]
        flags += [
            "--no-do-sample",
            "--subtalker-do-sample",
            "--subtalker-temperature",
            "0.25",
            "--subtalker-top-k",
            "9",
        ]
        flags += ["--subtalker-top-p", "0.5", "--min-frames", "2", "--max-frames", "3", "--ignore-eos"]
        voice = ["--voice", "anna", "--language", "en", "--instructions", "softly", "--no-non-streaming-mode"]
        audio = ["--encoding", "mulaw", "--sample-rate-hz", "8000", "--frame-duration-ms", "20", "--speed", "1.5"]
        audio += ["--volume-gain-db", "-3", "--max-audio-ms", "900", "--bitrate-bps", "9000"]
        voice += ["--pronounce", "SQL=sequel", "--pronounce", "R&D=are and dee"]
        voice += ["--text-format", "markdown", "--leave-out", "code", "--leave-out", "link", "--directions"]
        when = ["--batch", "--max-wait-ms", "700"]
        when += ["--commit", "sentence", "--max-buffer-delay-ms", "90", "--first-chunk-min-chars", "12"]
        await sonorant("say", "x", "--server", target, "--raw", *flags, *voice, *audio, *when)
    synthesis = speech.received[0].config.synthesis
    expected = Sampling(
        temperature=0.5,
        top_k=0,
        top_p=0.5,
        repetition_penalty=1.5,
        seed=1,
        do_sample=False,
        subtalker_do_sample=True,
        subtalker_temperature=0.25,
        subtalker_top_k=9,
        subtalker_top_p=0.5,
        min_frames=2,
        max_frames=3,
        ignore_eos=True,
    )
    assert synthesis.sampling == expected
    assert len(expected.ListFields()) == len(Sampling.DESCRIPTOR.fields), "a field of Sampling is not tested here"
    assert (synthesis.voice.voice_id, synthesis.language, synthesis.instructions) == ("anna", "en", "softly")
    assert dict(synthesis.pronunciations) == {"SQL": "sequel", "R&D": "are and dee"}
    assert (synthesis.text_format, list(synthesis.leave_out)) == (TEXT_FORMAT_MARKDOWN, [1, 3])
    assert synthesis.directions
    assert synthesis.HasField("non_streaming_mode") and not synthesis.non_streaming_mode
    expected_audio = AudioFormat(
        encoding=AUDIO_ENCODING_MULAW, sample_rate_hz=8000, frame_duration_ms=20, bitrate_bps=9000
    )
    assert synthesis.audio == expected_audio
    assert (synthesis.speed, synthesis.volume_gain_db, synthesis.max_audio_ms) == (1.5, -3, 900)
    assert speech.received[0].config.scheduling == Scheduling(priority=PRIORITY_BATCH, max_wait_ms=700)
    policy = TextPolicy(mode=COMMIT_MODE_SENTENCE, max_buffer_delay_ms=90, first_chunk_min_chars=12)
    assert speech.received[0].config.text_policy == policy


async def test_stdin_is_spoken_while_it_is_still_open() -> None:
    async with scripted_server() as (target, speech):
        process = await start("say", "--server", target, "--raw")
        assert process.stdin is not None and process.stdout is not None
        for piece in ("Hel", "lo, ", "wörld"):
            process.stdin.write(piece.encode())
            assert await process.stdout.readexactly(2 * len(piece)) == LOUD * len(piece)
        process.stdin.close()
        assert await process.wait() == 0
    assert [request.text for request in speech.received[1:]] == ["Hel", "lo, ", "wörld"]


async def test_an_utterance_that_ends_early_ends_the_command() -> None:
    async with scripted_server() as (target, _):
        process = await start("say", "--server", target, "--raw")
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"one ")
        await process.stdout.readexactly(8)
        process.stdin.write(b"limit")
        assert await asyncio.wait_for(process.wait(), 60) == 1  # although stdin stays open
        assert (
            process.stderr is not None
            and b"were spoken, the longest utterance of this checkpoint" in await process.stderr.read()
        )


async def test_a_requested_limit_is_a_success() -> None:
    async with scripted_server() as (target, _):
        asked = ("--word-by-word", "--max-audio-ms", "80")
        assert (await sonorant("say", "one limit", "--raw", *asked, "--server", target))[0] == 0


async def test_closed_stdin_is_no_text() -> None:
    async with scripted_server() as (target, _):
        script = f"{sys.executable} -m sonorant.cli say --raw --server {target} <&-"
        process = await asyncio.create_subprocess_exec("bash", "-c", script, stderr=asyncio.subprocess.PIPE)
        _, stderr = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1 and stderr == b"no audio: the text has nothing to speak\n"


async def test_closed_streams_and_a_full_disk_have_clear_messages(tmp_path: Path) -> None:
    """Without a stderr, what is for people must not be printed into the audio."""
    cases = [
        ("say x --raw >&-", 1, b"", b"sonorant: stdout is closed; "),
        ("say x --raw 2>&-", 0, LOUD, b""),
        ("say x --raw >/dev/full", 1, b"", b"sonorant: No space left on device\n"),
        ("say x --wav /dev/full", 1, b"", b"sonorant: /dev/full: No space left on device\n"),
    ]
    async with scripted_server() as (target, _):

        async def run(command: str) -> tuple[int | None, bytes, bytes]:
            script = f"{sys.executable} -m sonorant.cli {command} --server {target}"
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", script), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            heard, said = await process.communicate()
            return process.returncode, heard, said

        ran = await asyncio.gather(*(run(command) for command, *_ in cases))
    for (command, status, stdout, stderr), (code, heard, said) in zip(cases, ran, strict=True):
        assert (code, heard) == (status, stdout), (command, said)
        assert stderr in said and b"Traceback" not in said, (command, said)


async def test_a_character_cut_between_reads_is_put_together() -> None:
    async with scripted_server() as (target, speech):
        process = await start("say", "-", "--server", target, "--raw")
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"\xef\xbb\xbfa\xc3")  # with the mark of Windows
        await process.stdout.readexactly(2)
        process.stdin.write(b"\xb6b")
        process.stdin.close()
        assert await process.wait() == 0
    assert "".join(request.text for request in speech.received[1:]) == "aöb"


async def test_words_are_sent_one_by_one_with_pauses(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("one  two\nthree", encoding="utf-8-sig")  # as on Windows
    async with scripted_server() as (target, speech):
        await sonorant("say", "--file", str(text), "--server", target, "--raw", "--pause-ms", "50")
    assert [request.text for request in speech.received[1:]] == ["one  ", "two\n", "three"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["say", "x", "--voice", "busy"], b"", "sonorant: all places are taken"),
        (["say", "x", "--voice", "locked"], b"", "sonorant: an API key is needed; put it into SONORANT_CLIENT_API_KEY"),
        (["say", "fail"], b"", "sonorant: internal error, request_id=7"),
        (["say"], b"\xff\xfe", "sonorant: stdin is not UTF-8 text: "),
        (["say"], b"a\xc3", "sonorant: stdin is not UTF-8 text: "),
        (["say", "caf\udce9"], b"", r"sonorant: 'caf\udce9' is not UTF-8 text"),
        (["say", "--file", "/nonexistent/text"], b"", "sonorant: /nonexistent/text: No such file or directory"),
        (
            ["say", "--file", "engine/sonorant/engine/builtin_voice/model.safetensors"],
            b"",
            "model.safetensors is not UTF-8 text: ",
        ),
        (["say"], b"", "no audio: the text has nothing to speak"),
    ],
)
async def test_failures_are_one_line_and_a_status(arguments: list[str], stdin: bytes, message: str) -> None:
    async with scripted_server() as (target, _):
        status, _, stderr = await sonorant(*arguments, "--server", target, "--raw", stdin=stdin)
    assert status == 1
    assert message in stderr and "Traceback" not in stderr


async def test_what_stdout_has_no_character_for_is_escaped() -> None:
    async with served(FakeEngine()) as server:
        ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
        status, stdout, stderr = await sonorant("explain", "5 €", "--server", server.address, env=ascii_only)
    assert (status, stderr) == (0, "") and b"\\u20ac" in stdout


@pytest.mark.parametrize("number", ["-5", "x", "4294967296", "1.5"])
def test_messages_about_wrong_numbers_name_the_argument(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["say", "x", "--seed"], ["voices", "mix", "duet", "a=1", "b=1", "--ttl-s"]):
        with pytest.raises(SystemExit, match="2"):
            cli.parser().parse_args([*command, number])
        said = capsys.readouterr().err
        assert f"argument {command[-1]}: {number!r} is not a whole number from 0 to 4294967295" in said


async def test_a_file_that_is_not_an_embedding_is_refused_with_its_name() -> None:
    status, _, stderr = await sonorant(
        "voices", "create", "--embedding", "engine/sonorant/engine/builtin_voice/vocab.json"
    )
    assert status == 1
    assert (
        stderr == "sonorant: engine/sonorant/engine/builtin_voice/vocab.json "
        "is not a NumPy file of numbers; write one with numpy.save\n"
    )


async def test_words_of_a_text_need_no_quotes(tmp_path: Path) -> None:
    async with scripted_server() as (target, speech):
        for words in (["two", "words", "--raw"], ["--raw", "two", "words"], ["two", "--raw", "words"]):
            status, _, stderr = await sonorant("say", "--server", target, *words)
            assert status == 0, stderr
            assert speech.received[0].config.opening.text == "two words"
            speech.received.clear()
    async with served(FakeEngine()) as server:
        status, stdout, stderr = await sonorant("explain", "two", "--server", server.address, "words")
    assert status == 0 and b'text      "two words"' in stdout, stderr


async def test_wrong_usage_is_told_in_one_line() -> None:
    status, stdout, stderr = await sonorant("say", "x", "--wav")
    assert (status, stdout) == (2, b"")
    assert stderr == "sonorant say: argument --wav: expected one argument; see sonorant say --help\n"
    status, _, stderr = await sonorant("say", "x", "--seed", "1", "y", "--loud")
    assert (status, stderr) == (2, "sonorant: unrecognized arguments: y --loud; see sonorant --help\n")
    status, _, stderr = await sonorant("voices", "mix", "duet", "anna", "ben")
    assert status == 2 and "'anna' is not VOICE=WEIGHT, such as anna=0.7" in stderr
    status, _, stderr = await sonorant("--hlep")
    assert (status, stderr) == (2, "sonorant: unrecognized arguments: --hlep; see sonorant --help\n")
    status, _, stderr = await sonorant()
    assert status == 2 and "speak a text" in stderr


@pytest.mark.parametrize(
    ("arguments", "kind", "instead"),
    [
        (["say", "x", "--wav", "x.mp3"], "wav", "--file FILE --out-dir DIR --format mp3"),
        (["say", "x", "--wav", "x.OGG"], "wav", "--ogg FILE"),
        (["say", "x", "--ogg", "x.wav"], "ogg", "--wav FILE"),
        (["say", "x", "--codes", "x.m4a"], "codes", ""),
        (["decode", "x.codes", "--wav", "x.ulaw"], "wav", "--encoding mulaw --raw > FILE"),
        (["voices", "preview", "ada", "--wav", "x.flac"], "wav", "--file FILE --out-dir DIR --format flac"),
    ],
)
def test_a_file_is_what_its_name_says(
    arguments: list[str], kind: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.parser().parse_args(arguments)
    other = f", or write it by sonorant say {instead}" if instead else ""
    assert f": {arguments[-1]} would be a .{kind} file; name it so{other}; see " in capsys.readouterr().err
    for name in ("x.wav", "take.2", "x", "-", "/dev/stdout"):
        assert cli.parser().parse_args([*arguments[:-2], "--wav", name]).wav == Path(name)


async def test_no_server_and_no_player_have_clear_messages() -> None:
    status, _, stderr = await sonorant("health", "--server", "127.0.0.1:1")
    assert status == 1 and "start one with: sonorant-server" in stderr
    status, _, stderr = await sonorant("health", "--server", "localhost")
    assert status == 1 and "give the port, too: localhost:50051" in stderr
    status, _, stderr = await sonorant("health", "--server", "https://localhost:1")
    assert status == 1 and "give host and port instead of a URL: localhost:1, with SONORANT_CLIENT_TLS=1" in stderr
    status, _, stderr = await sonorant("say", "x", env=NO_PLAYER)
    assert status == 1 and "neither ffplay nor aplay is installed" in stderr
    status, _, stderr = await sonorant("voices", "preview", "ada", env=NO_PLAYER)
    assert status == 1 and "say where the audio should go: --wav FILE" in stderr
    status, _, stderr = await sonorant("say", "x", "--wav", "x.wav", "--encoding", "wav")
    assert status == 1 and "--encoding is for --raw" in stderr


def test_commands_that_need_an_installed_server_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sonorant.service", None)  # as if it were not installed
    for command in (["doctor"], ["bench", "--closed", "1"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(command)
        assert ended.value.code == 1
        assert "the server is not installed here, only the client: pip install" in capsys.readouterr().err


def test_each_command_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    for name, parse in (
        ("sonorant", cli.main),
        ("sonorant-server", server_settings),
        ("sonorant-gateway", gateway_settings),
    ):
        with pytest.raises(SystemExit) as ended:
            parse(["--version"])
        assert (ended.value.code, capsys.readouterr().out) == (0, f"{name} {__version__}\n")


@pytest.mark.slow
async def test_doctor_is_run_by_the_server_with_its_settings() -> None:
    status, stdout, _ = await sonorant("doctor", "--help")
    assert status == 0 and b"sonorant-server" in stdout
    status, _, stderr = await sonorant("doctor", "--num-slot", "4")
    assert status == 2 and "did you mean --num-slots?" in stderr
    status, _, stderr = await sonorant("health", "--num-slots", "4")
    assert status == 2 and "unrecognized arguments: --num-slots 4" in stderr


async def test_an_error_about_a_field_is_printed_once() -> None:
    async with scripted_server() as (target, _):
        status, _, stderr = await sonorant("say", "x", "--voice", "nobody", "--raw", "--server", target)
    assert status == 1 and stderr.count("is wrong") == 1


async def test_interrupt_ends_quietly_and_leaves_a_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    async with scripted_server() as (target, speech):
        process = await start("say", "--server", target, "--wav", str(path))
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"four")
        assert b"voice" in await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert b"Traceback" not in await process.stderr.read()
        await asyncio.wait_for(speech.over.wait(), 60)
    with wave.open(str(path)) as file:
        assert file.getnframes() in (0, 4) and file.readframes(4) == LOUD * file.getnframes()


async def test_subtitles_have_what_their_audio_has_when_it_is_broken_off(tmp_path: Path) -> None:
    class Marked(Speech):
        async def Speak(
            self, requests: AsyncIterator[SpeakRequest], context: grpc.aio.ServicerContext
        ) -> AsyncIterator[SpeakResponse]:
            async for response in super().Speak(requests, context):
                yield response
                if response.HasField("audio"):
                    marks = Marks(marks=[Mark(text="four", text_end=4, end_ms=90)])
                    yield SpeakResponse(utterance_id=response.utterance_id, marks=marks)

    path = tmp_path / "out.srt"
    async with scripted_server(speech=Marked()) as (target, _):
        arguments = ("--wav", str(tmp_path / "out.wav"), "--subtitles", str(path), "--trace")
        process = await start("say", "--server", target, *arguments)
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"four")
        while b"marks" not in await process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    assert path.read_text() == "1\n00:00:00,000 --> 00:00:00,090\nfour\n"


async def test_subtitles_that_cannot_be_written_are_told_before_anything_is_spoken(tmp_path: Path) -> None:
    audio, folder = tmp_path / "out.wav", tmp_path / "folder.srt"
    folder.mkdir()
    async with scripted_server() as (target, _):
        told = await sonorant("say", "x", "--server", target, "--wav", str(audio), "--subtitles", str(folder))
    assert told == (1, b"", f"sonorant: {folder}: Is a directory\n") and not audio.exists()


async def test_a_reader_of_stdout_that_goes_away_is_no_crash() -> None:
    async with scripted_server() as (target, _):
        script = f"{sys.executable} -m sonorant.cli say 0123456789 --word-by-word --raw --server {target} | true"
        process = await asyncio.create_subprocess_exec("bash", "-c", script, stderr=asyncio.subprocess.PIPE)
        _, stderr = await process.communicate()
    assert b"Traceback" not in stderr and b"BrokenPipe" not in stderr


async def test_capabilities_and_health_are_printed() -> None:
    async with scripted_server() as (target, _):
        status, stdout, _ = await sonorant("voices", "--server", target)
        assert status == 0 and stdout.decode().splitlines()[4].split() == ["v4", "preset", "english"]
        status, stdout, _ = await sonorant("capabilities", "--server", target)
        assert (
            status == 0 and '"model": "scripted"' in stdout.decode() and '"supports_cloning": false' in stdout.decode()
        )
        assert (await sonorant("health", "--server", target))[:2] == (0, b"SERVING\n")
    async with scripted_server(serving=False) as (target, _):
        assert (await sonorant("health", "--server", target))[:2] == (1, b"NOT_SERVING\n")


def test_help_has_examples_that_parse() -> None:
    examples = cli.EXAMPLES + say.EXAMPLES + decode.EXAMPLES + voices.EXAMPLES
    lines = [line for line in examples.splitlines() if "sonorant " in line]
    assert len(lines) == 23
    for line in lines:
        arguments = line.partition("sonorant ")[2].partition("  ")[0].partition(" |")[0].partition(" >")[0]
        cli.parser().parse_args(shlex.split(arguments))


async def _collect(pieces: list[str]) -> list[str]:
    async def source() -> AsyncIterator[str]:
        for piece in pieces:
            yield piece

    return [word async for word in say.words(source())]


@given(st.lists(st.text(alphabet="ab \n", max_size=6), max_size=8))
def test_words_keep_the_text_and_break_only_after_white_space(pieces: list[str]) -> None:
    cut = asyncio.run(_collect(pieces))
    assert "".join(cut) == "".join(pieces)
    assert all(cut) and all(word[-1].isspace() for word in cut[:-1])
    assert all(len(word.split()) <= 1 for word in cut)
