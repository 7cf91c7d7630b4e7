"""Outputs for audio: a WAV file, raw bytes in a file or on a stream, a player.

Each output is an async context manager that yields a `write(data)` function. Leaving it finishes the file, or waits
until the player has played everything.
"""

import asyncio
import io
import shutil
import struct
import sys
import wave
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from sonorant.client.listening.compressed import CODECS, open_compressed

Write: TypeAlias = Callable[[bytes], object]

_WAV_HEAD = struct.Struct("<4sI4s4sIHHIIHH4sI")
_UNKNOWN = 0xFFFFFFFF  # in place of a length


def output(
    sample_rate_hz: int, *, wav: Path | None, encoded: Path | None, raw: BinaryIO | None
) -> AbstractAsyncContextManager[Write]:
    """Return the output that is given, or else a player. `encoded`: a file for the bytes as they come.

    Raises FileNotFoundError if no output is given and no player is installed.
    """
    if wav:
        return wav_file(wav, sample_rate_hz)
    if encoded:
        return raw_file(encoded)
    command = None if raw else player_command(sample_rate_hz)
    if command:
        return player(command)
    if raw is None:
        raise FileNotFoundError("neither ffplay nor aplay is installed")
    return raw_stream(raw)


def stdout() -> BinaryIO:
    """Return stdout for raw bytes. Raises ValueError if this program was started with a closed stdout."""
    if sys.stdout is None:
        raise ValueError("stdout is closed; there is nowhere to write the audio")
    return sys.stdout.buffer


class _NamedFile(io.FileIO):
    """A file whose write errors name it (if the disk is full, for example), as the errors of open() do."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.name
            raise


def new_file(path: Path) -> BinaryIO:
    """Make a file; what goes wrong with it later names it, too."""
    return io.BufferedWriter(_NamedFile(path, "w"))


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write to; "-" is stdout."""
    if str(path) == "-":
        yield stdout()
    else:
        with new_file(path) as file:
            yield file


@contextmanager
def open_wav(path: Path, sample_rate_hz: int) -> Iterator[Write]:
    """Write 16-bit mono samples to a WAV file; its header is complete once the context is left. In a pipe, or on stdout
    ("-"), it is a header without lengths, and each write is flushed."""
    with ExitStack() as stack:
        raw = stack.enter_context(_opened(path))  # first: a wrong path is not also an error of a half-made Wave_write
        if str(path) == "-" or not raw.seekable():
            write = _flushed(raw)
            write(
                _WAV_HEAD.pack(
                    b"RIFF",
                    _UNKNOWN,
                    b"WAVE",
                    b"fmt ",
                    16,
                    1,
                    1,
                    sample_rate_hz,
                    2 * sample_rate_hz,
                    2,
                    16,
                    b"data",
                    _UNKNOWN,
                )
            )
            yield write
            return
        file = stack.enter_context(wave.open(raw, "wb"))
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate_hz)
        yield file.writeframes


@asynccontextmanager
async def wav_file(path: Path, sample_rate_hz: int) -> AsyncIterator[Write]:
    with open_wav(path, sample_rate_hz) as write:
        yield write


@asynccontextmanager
async def raw_file(path: Path) -> AsyncIterator[Write]:
    """Write bytes to a file as they are, for encodings with a container of their own. "-" is stdout."""
    with _opened(path) as file:
        yield file.write if file.seekable() else _flushed(file)


def audio_file(path: Path, sample_rate_hz: int) -> AbstractAsyncContextManager[Write]:
    """Write a file in the format that its name says. What is written must be in `file_formats.encoding_for(path)`."""
    if path.suffix in CODECS:
        return compressed_file(path, sample_rate_hz)
    return wav_file(path, sample_rate_hz) if path.suffix == ".wav" else raw_file(path)


@asynccontextmanager
async def compressed_file(path: Path, sample_rate_hz: int) -> AsyncIterator[Write]:
    with open_compressed(path, sample_rate_hz) as write:
        yield write


@asynccontextmanager
async def raw_stream(stream: BinaryIO) -> AsyncIterator[Write]:
    yield _flushed(stream)


def _flushed(stream: BinaryIO) -> Write:
    """Flush each write, so that a program behind a pipe gets it without delay."""

    def write(data: bytes) -> None:
        stream.write(data)
        stream.flush()

    return write


def check_player(instead: str) -> None:
    """Raise ValueError if no player is installed. `instead`: arguments that need none."""
    if player_command(1) is None:
        raise ValueError(f"neither ffplay nor aplay is installed; say where the audio should go: {instead}")


def player_command(sample_rate_hz: int) -> list[str] | None:
    """The command line of a player that takes 16-bit mono samples on stdin, or None if none is installed."""
    rate = str(sample_rate_hz)
    if ffplay := shutil.which("ffplay"):
        raw = ["-f", "s16le", "-ar", rate, "-i", "pipe:0"]  # one channel is what ffplay assumes
        return [ffplay, "-loglevel", "error", "-nodisp", "-autoexit", "-fflags", "nobuffer", *raw]
    if aplay := shutil.which("aplay"):
        return [aplay, "--quiet", "--file-type=raw", "--format=S16_LE", "--channels=1", f"--rate={rate}", "-"]
    return None


@asynccontextmanager
async def player(command: list[str]) -> AsyncIterator[Write]:
    """Write samples to a player's stdin. Samples that the player has not taken yet wait here, so `write` never
    waits."""
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    stdin = process.stdin
    assert stdin is not None
    try:
        yield stdin.write
        with suppress(ConnectionError):  # the player was closed by its user
            await stdin.drain()
        stdin.close()
        await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
