"""`sonorant say --out-dir` speaks a book: as background work, and with as much memory as a short text needs."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from sonorant.tts.v1 import audio_pb2, synthesis_pb2, text_to_speech_service_pb2
from tests.clients.cli._support import sonorant
from tests.clients.scripted_server import FORMAT, Speech, scripted_server

# What it needed at the most, in KiB, goes to stdout. `ru_maxrss` would be what this process has, if that is more.
SAY = """
import sys
from pathlib import Path
from sonorant.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
CHAPTER = "# One more chapter\n\n" + "It was said again, and it was heard again.\n" * 1_000
AUDIO = bytes(400_000)  # of a chapter
SHORT, LONG = 10, 100  # chapters
# A quarter of what the longer one is larger by. The most that a chapter needs at a time varies by a few of its copies,
# and a hundred chapters see more of that than ten.
MAX_MORE_KIB = (LONG - SHORT) * len(AUDIO) // 4 // 1024
Response = text_to_speech_service_pb2.SynthesizeStreamResponse


class Books(Speech):
    def __init__(self) -> None:
        super().__init__()
        self.priorities = set[int]()
        self.texts = set[str]()

    async def SynthesizeStream(
        self, request: text_to_speech_service_pb2.SynthesizeStreamRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Response]:
        self.priorities.add(request.scheduling.priority)
        self.texts.add(request.text)
        yield Response(started=synthesis_pb2.UtteranceStarted(audio=FORMAT))
        yield Response(audio=audio_pb2.AudioChunk(data=AUDIO, num_samples=len(AUDIO) // 2))
        yield Response(warning=synthesis_pb2.Warning(code="WORDS_LEFT_OUT", message="not spoken"))
        yield Response(done=synthesis_pb2.UtteranceDone(reason=synthesis_pb2.FINISH_REASON_COMPLETED))

    async def GetCapabilities(
        self, request: text_to_speech_service_pb2.GetCapabilitiesRequest, context: grpc.aio.ServicerContext
    ) -> text_to_speech_service_pb2.GetCapabilitiesResponse:
        return text_to_speech_service_pb2.GetCapabilitiesResponse(max_text_chars=100_000)


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
async def test_a_longer_book_needs_no_more_memory_and_listeners_go_first(tmp_path: Path) -> None:
    needed = []
    books = Books()
    async with scripted_server(speech=books) as (target, _):
        for num_chapters in (SHORT, LONG):
            book = tmp_path / f"{num_chapters}.txt"
            book.write_text(CHAPTER * num_chapters, encoding="utf-8-sig")  # as on Windows
            out = tmp_path / f"{num_chapters}"
            arguments = ("say", "--server", target, "--file", str(book), "--out-dir", str(out))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", SAY, *arguments, "--each", "chapter", "--at-once", "1"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            stdout, stderr = await process.communicate()
            assert process.returncode == 0, stderr
            assert len(list(out.glob("*.wav"))) == num_chapters
            assert f"{book}, line 1: 00001.wav: not spoken (WORDS_LEFT_OUT)" in stderr.decode()
            needed.append(int(stdout))
        assert books.priorities == {synthesis_pb2.PRIORITY_BATCH}
    assert books.texts == {CHAPTER.removeprefix("# ").strip()}
    assert needed[1] < needed[0] + MAX_MORE_KIB


async def test_nothing_half_made_is_left_of_a_piece_that_cannot_be_written(tmp_path: Path) -> None:
    (book := tmp_path / "book.txt").write_text("One line.\n")
    (in_its_place := tmp_path / "out" / "00001.srt").mkdir(parents=True)
    options = ("--file", str(book), "--out-dir", str(tmp_path / "out"), "--subtitles", "srt", "--overwrite")
    async with scripted_server(speech=Books()) as (target, _):
        status, _, told = await sonorant("say", "--server", target, *options)
    assert status == 1 and "Is a directory" in told
    assert sorted(path.name for path in in_its_place.parent.iterdir()) == ["00001.srt", "finished.jsonl"]
