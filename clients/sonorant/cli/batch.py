"""`sonorant say --file FILE --out-dir DIR`: speaks the pieces of a text file into a file each.

Several pieces are spoken at the same time, as background work. A file gets its name once it is complete, so a job that
was stopped, killed or refused goes on where it was. The memory in use does not grow with the text.
"""

import argparse
import asyncio
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sonorant.cli.config_arguments import config_of
from sonorant.cli.finished import Finished, digest, finished_in
from sonorant.cli.progress import Progress
from sonorant.cli.subtitles import subtitles
from sonorant.client.client import SpeechClient
from sonorant.client.clip import Reason
from sonorant.client.configs import scheduling
from sonorant.client.errors import InvalidRequest, ServerBusy, ServerUnavailable, SpeechError
from sonorant.client.file_formats import encoding_for
from sonorant.client.transport.backoff import delays_s
from sonorant.client.transport.retries import Retry
from sonorant.tts.v1.audio_pb2 import AudioEncoding
from sonorant.tts.v1.synthesis_pb2 import Mark, Marks, SynthesisConfig
from sonorant.tts.v1.synthesis_pb2 import Warning as SpeechWarning

EACH = ("line", "paragraph", "chapter")
MAX_PIECES = 99_999  # as their files have five digits
# Of Markdown, or as in "CHAPTER IV" and "Chapter 4: The River".
_HEADING = re.compile(r"#{1,2}\s+\S|chapter\s+([ivxlc]+|\d+|[a-z]+)\b.{0,80}$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BatchPiece:
    number: int  # from 1
    line: int  # at which it begins, from 1
    text: str


def pieces(lines: Iterable[str], each: str, max_chars: int) -> Iterator[BatchPiece]:
    """Yield the pieces that have a letter or digit. Holds one at a time.

    `each`: one of EACH. Paragraphs are divided by blank lines, chapters begin with a heading of Markdown or a line such
    as "Chapter 4". Raises ValueError for a piece of more than `max_chars`, and for more than MAX_PIECES.
    """
    number = 0
    for line, text in _blocks(lines, each, max_chars):
        if any(map(str.isalnum, text)):
            number += 1
            if number > MAX_PIECES:
                raise ValueError(f"line {line}: more than {MAX_PIECES} pieces; cut the file in two")
            yield BatchPiece(number, line, text)


def _blocks(lines: Iterable[str], each: str, max_chars: int) -> Iterator[tuple[int, str]]:
    held: list[str] = []
    begin, num_chars = 1, 0
    for number, line in enumerate(lines, 1):
        if each == "line":
            ends = True
        elif each == "paragraph":
            ends = not line.strip()
        else:
            ends = _HEADING.match(line) is not None
        if ends and held:
            yield begin, "".join(held).strip()
            held, num_chars = [], 0
        if not held:
            if not line.strip():
                continue
            begin = number
        held.append(line.lstrip("# ") if each == "chapter" and ends else line)
        num_chars += len(line.rstrip("\n"))
        if num_chars > max_chars:
            shorter = " Use --each paragraph or line." if each != "line" else ""
            raise ValueError(f"line {begin}: this {each} has more than {max_chars} characters.{shorter}")
    if held:
        yield begin, "".join(held).strip()


MAX_WAIT_MS = 600_000  # for a place in the server, before the piece asks again
RETRY_S = 600.0  # how long to go on without a server
MAX_DRAWS = 3  # how often a piece is spoken if its audio goes wrong


def add_arguments(parser: argparse.ArgumentParser) -> None:
    files = parser.add_argument_group("many files (with --out-dir)")
    files.add_argument("--each", choices=EACH, default="line", help="what becomes a file of its own; default: a line")
    files.add_argument("--format", choices=("wav", "mp3", "opus", "flac"), default="wav", help="default: wav")
    files.add_argument("--at-once", type=int, default=4, metavar="N", help="speak N pieces at a time; default: 4")
    files.add_argument("--overwrite", action="store_true", help="replace files that were made of something else")


@dataclass(frozen=True, slots=True)
class _Spoken:
    audio_s: float
    marks: list[Mark]
    warnings: list[SpeechWarning]


class _WentWrong(Exception):
    """The audio of a piece is not that of its text."""


async def run(args: argparse.Namespace) -> int:
    """Speak all pieces that are not finished; return the exit status: 1 if any failed."""
    if args.file is None:
        raise ValueError("--out-dir needs --file: a job that is to go on where it stopped reads its text again")
    if args.at_once < 1:
        raise ValueError("--at-once: speak one piece at a time, or more")
    async with SpeechClient(args.server) as client:
        patient = client.limited(retry=Retry(for_s=RETRY_S, when_down=True))
        max_chars = (await patient.capabilities()).max_text_chars
        with finished_in(args.out_dir) as finished, closing(_Job(args, client, finished, max_chars)) as job:
            job.look_through()
            todo = job.todo()
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(args.at_once):
                        tasks.create_task(job.speak_all(todo))
            except ExceptionGroup as group:
                raise group.exceptions[0] from None
    return job.report()


class _Job:
    def __init__(self, args: argparse.Namespace, client: SpeechClient, finished: Finished, max_chars: int) -> None:
        self._file: Path = args.file
        self._folder: Path = args.out_dir
        self._each: str = args.each
        self._suffix = f".{args.format}"
        self._subtitles = "" if args.subtitles is None else f".{args.subtitles}"
        self._overwrites: bool = args.overwrite
        self._client = client
        self._finished = finished
        self._max_chars = max_chars
        encoding = AudioEncoding.Name(encoding_for(Path(f"x{self._suffix}")))
        self._config = config_of(args, encoding.removeprefix("AUDIO_ENCODING_").lower())
        self._may_end_early = bool(args.max_audio_ms or args.max_frames)
        self._num_pieces = self._num_chars = 0  # of the whole file
        self._num_done = self._num_failed = self._num_found = 0
        self._progress = Progress(0)

    def look_through(self) -> None:
        """Count the work, and raise ValueError for whatever stands in its way, before anything is spoken."""
        num_chars = 0
        for piece in self._pieces():
            self._num_pieces += 1
            if self._is_finished(piece):
                self._num_found += 1
            else:
                num_chars += len(piece.text)
        if not self._num_pieces:
            raise ValueError(f"{self._file}: there is nothing to speak in it")
        self._progress = Progress(num_chars)
        if self._num_found:
            self._progress.note(f"{self._num_found} of {self._num_pieces} files are finished already")

    def todo(self) -> Iterator[BatchPiece]:
        return (piece for piece in self._pieces() if not self._is_finished(piece))

    async def speak_all(self, todo: Iterator[BatchPiece]) -> None:
        for piece in todo:
            name = self._name(piece)
            try:
                spoken = await self._speak(piece)
            except (_WentWrong, InvalidRequest) as error:
                if isinstance(error, InvalidRequest) and not _is_about_the_text(error):
                    raise
                self._num_failed += 1
                self._progress.end(piece.number, len(piece.text))
                self._progress.note(f"{self._file}, line {piece.line}: {name} was not made: {error}")
                continue
            self._num_done += 1
            self._progress.end(piece.number, len(piece.text))
            done, left = self._num_done + self._num_found, self._progress.time_left()
            self._progress.note(f"{done} of {self._num_pieces}  {name}  {spoken.audio_s:.1f} s{left}")
            for warning in spoken.warnings:
                self._progress.note(f"{self._file}, line {piece.line}: {name}: {warning.message} ({warning.code})")

    def close(self) -> None:
        """Leave the terminal to others."""
        self._progress.close()

    def report(self) -> int:
        if self._num_failed:
            self._progress.note(
                f"{self._num_failed} of {self._num_pieces} files were not made; the same command tries these again"
            )
        return 1 if self._num_failed else 0

    def _pieces(self) -> Iterator[BatchPiece]:
        try:
            with self._file.open(encoding="utf-8-sig") as file:
                # A line that is too long is refused before all of it is in memory.
                lines = iter(lambda: file.readline(self._max_chars + 2), "")
                yield from pieces(lines, self._each, self._max_chars)
        except UnicodeDecodeError as error:
            raise ValueError(f"{self._file} is not UTF-8 text: {error}") from None

    def _name(self, piece: BatchPiece) -> str:
        return f"{piece.number:05}{self._suffix}"

    def _made_of(self, piece: BatchPiece) -> str:
        return digest(piece.text.encode(), self._config.SerializeToString(deterministic=True))

    def _is_finished(self, piece: BatchPiece) -> bool:
        """Raises ValueError if a file stands in the way."""
        names = [self._name(piece)]
        if self._subtitles:
            names.append(f"{piece.number:05}{self._subtitles}")
        made_of = self._made_of(piece)
        try:
            found = [self._finished.has(name, made_of) for name in names]
        except ValueError:
            if self._overwrites:
                return False
            raise
        return all(found)

    async def _speak(self, piece: BatchPiece) -> _Spoken:
        """Speak a piece into its file. Raises _WentWrong, or the SpeechError of a server that refuses it."""
        part = self._folder / f"{piece.number:05}.part{self._suffix}"
        lines = part.with_suffix(self._subtitles)
        try:
            spoken = await self._draw_until_good(piece, part)
            made_of = self._made_of(piece)
            if self._subtitles:
                lines.write_text(subtitles(spoken.marks, self._subtitles), encoding="utf-8")
                self._finished.note(f"{piece.number:05}{self._subtitles}", made_of)
                lines.replace(self._folder / f"{piece.number:05}{self._subtitles}")
            self._finished.note(self._name(piece), made_of)
            part.replace(self._folder / self._name(piece))
            return spoken
        finally:
            for left in (part, lines):
                left.unlink(missing_ok=True)

    async def _draw_until_good(self, piece: BatchPiece, part: Path) -> _Spoken:
        """Speak again what goes wrong, with other random draws, and wait for a server that is full or away."""
        config = SynthesisConfig()
        config.CopyFrom(self._config)
        draw, give_up_s, delays = 1, time.monotonic() + RETRY_S, delays_s()
        while True:
            try:
                return await self._draw(piece, config, part)
            except _WentWrong:
                if draw == MAX_DRAWS:
                    raise
                if config.sampling.HasField("seed"):
                    config.sampling.seed = (config.sampling.seed + 1) % 2**32
                draw, give_up_s, delays = draw + 1, time.monotonic() + RETRY_S, delays_s()
            except (ServerBusy, ServerUnavailable) as error:
                wait_s = max(next(delays), error.retry_after_s or 0.0)
                if time.monotonic() + wait_s > give_up_s:
                    raise
                await asyncio.sleep(wait_s)

    async def _draw(self, piece: BatchPiece, config: SynthesisConfig, part: Path) -> _Spoken:
        marks: list[Mark] = []
        warnings: list[SpeechWarning] = []

        def reached(told: Marks) -> None:
            self._progress.reach(piece.number, told.marks[-1].text_end)
            if self._subtitles:
                marks.extend(told.marks)

        saved = await self._client.stream_to_file(
            piece.text,
            part,
            config,
            timestamps=bool(self._subtitles) or self._progress.is_shown,
            scheduling=scheduling(batch=True, max_wait_ms=MAX_WAIT_MS),
            on={Marks: reached, SpeechWarning: warnings.append},
        )
        for warning in warnings:
            if warning.code in ("RUNAWAY", "BABBLE", "NO_SPEAKABLE_TEXT"):
                raise _WentWrong(warning.message)
        if saved.reason is not Reason.COMPLETED and not self._may_end_early:
            stats = saved.stats
            raise _WentWrong(f"only {stats.spoken_chars} of {len(piece.text)} characters were spoken")
        return _Spoken(saved.stats.sent_ms / 1000, marks, warnings)


def _is_about_the_text(error: SpeechError) -> bool:
    return bool(error.fields) and all(field == "text" for field in error.fields)
