"""`sonorant say`: speaks text from an argument, a file or stdin into a file, to stdout or through the sound card.

It sends text as it arrives while audio comes in, and reports on stderr what the listener got.
"""

import argparse
import asyncio
import math
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from sonorant.bench.arguments import positive
from sonorant.cli import batch
from sonorant.cli.config_arguments import add_config_arguments, config_of, file_of, whole_number
from sonorant.cli.progress import Progress
from sonorant.cli.stdin import stdin_text
from sonorant.cli.subtitles import FORMATS, subtitles
from sonorant.client.client import SpeechClient
from sonorant.client.configs import COMMIT_MODES, LONGEST_IDLE_MS, scheduling, text_policy
from sonorant.client.events import Resumed
from sonorant.client.listening import audio_out
from sonorant.client.listening.listener import Listener
from sonorant.client.listening.playback import PlaybackMeter, PlaybackReport
from sonorant.client.speaking.session import Session
from sonorant.client.transport.trace import Trace
from sonorant.tts.v1.synthesis_pb2 import FinishReason, Mark, Marks, Queued, UtteranceDone, UtteranceStarted, Warning

EXAMPLES = """\
examples:
  sonorant say "Hello, world."                                  play it (needs ffplay or aplay)
  sonorant say "Hello, world." --wav hello.wav --voice NAME     a voice from `sonorant voices`
  sonorant say --file story.txt --wav story.wav --seed 7 --speed 1.2
  sonorant say --file story.txt --wav story.wav --subtitles story.srt
  sonorant say "Hello, world." --ogg hello.ogg --bitrate-bps 24000
  sonorant say "Hello, world." --codes hello.codes              1/170 of the size; for `sonorant decode`
  some-llm | sonorant say --wav answer.wav                      speak stdin while it is still being written
  sonorant say --file lines.txt --out-dir spoken --format mp3   a file for each line; the same again goes on
  sonorant say "One word at a time." --word-by-word --pause-ms 200 --raw | aplay -f S16_LE -r 24000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    text = parser.add_argument_group("text (give one; without any, stdin)").add_mutually_exclusive_group()
    text.add_argument("text", nargs="*", default=[], help="the text to speak; - for stdin")
    text.add_argument("--file", type=Path, help="speak a UTF-8 text file")

    pace = parser.add_argument_group("how fast the text is sent (to hear what a growing text sounds like)")
    pace.add_argument("--word-by-word", action="store_true", help="send each word in a message of its own")
    pace.add_argument("--commit", choices=COMMIT_MODES, default="", help="when text goes to the model; default: token")
    pace.add_argument(
        "--max-buffer-delay-ms",
        type=whole_number,
        metavar="N",
        help="speak all text to its end if none comes for N ms; default: 300 after a sentence, else 2000",
    )
    pace.add_argument(
        "--first-chunk-min-chars", type=whole_number, metavar="N", help="begin to speak when there are N characters"
    )
    pauses = pace.add_mutually_exclusive_group()
    pauses.add_argument("--pause-ms", type=positive, metavar="N", help="wait this long after each word")
    pauses.add_argument("--words-per-minute", type=positive, metavar="N", help="send words at this speed")

    output = parser.add_argument_group(
        "where the audio goes (give one; without any, it is played)"
    ).add_mutually_exclusive_group()
    output.add_argument("--wav", type=file_of(".wav"), metavar="FILE", help="write a WAV file; - for stdout")
    output.add_argument(
        "--ogg", type=file_of(".ogg", ".opus"), metavar="FILE", help="write an Ogg Opus file; - for stdout"
    )
    codes = file_of(".codes")
    output.add_argument("--codes", type=codes, metavar="FILE", help="write the model's codes, for `sonorant decode`")
    output.add_argument("--out-dir", type=Path, metavar="DIR", help="write a file for each line of --file")
    output.add_argument("--raw", action="store_true", help="write the bytes to stdout, as they come")

    parser.add_argument(
        "--max-lead-ms",
        type=whole_number,
        metavar="N",
        help="how far the server may be ahead of the playback; 0 = no limit, the default unless the audio is played",
    )
    parser.add_argument(
        "--max-wait-ms", type=whole_number, default=0, metavar="N", help="if the server is full, wait for up to N ms"
    )
    parser.add_argument("--batch", action="store_true", help="nobody listens: let others go first")
    parser.add_argument(
        "--subtitles",
        type=_subtitles,
        metavar="FILE",
        help="write subtitles: FILE.srt or FILE.vtt; srt or vtt for many",
    )
    parser.add_argument("--trace", action="store_true", help="print each message and its time to stderr")
    batch.add_arguments(parser)
    add_config_arguments(parser)


async def run(args: argparse.Namespace) -> int:
    """Speak the text; return the exit status."""
    _check(args)
    if args.out_dir:
        return await batch.run(args)
    max_lead_ms = args.max_lead_ms
    if max_lead_ms is None and not _is_played(args):
        max_lead_ms = 0
    marks: list[Mark] = []
    text = _known_text(args)
    progress = Progress(len(text) if args.file and not _is_played(args) else 0)  # who plays it hears how far it is
    trace = Trace(progress.note) if args.trace else None
    begin_s = time.monotonic()
    async with (
        SpeechClient(args.server) as client,
        client.speak(
            config_of(args, _encoding(args)),
            timestamps=args.subtitles is not None or progress.is_shown,
            max_lead_ms=max_lead_ms,
            idle_timeout_ms=LONGEST_IDLE_MS,
            trace=trace,
            text=text,
            end=bool(text),
            scheduling=scheduling(batch=args.batch, max_wait_ms=args.max_wait_ms),
            text_policy=text_policy(
                args.commit,
                max_buffer_delay_ms=args.max_buffer_delay_ms,
                first_chunk_min_chars=args.first_chunk_min_chars,
            ),
        ) as session,
        _subtitled(args.subtitles, marks),
        _output(args, session.started.audio.sample_rate_hz) as write,
    ):
        listener = Listener(
            PlaybackMeter(session.started.audio.sample_rate_hz),
            on_audio=write,
            on=_told(args, progress, marks),
            measure_sound=_encoding(args) == "pcm_s16le",
        )
        if text and not text.isspace():
            listener.meter.text_sent(begin_s)
        try:
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(session.finish() if text else _send(session, _pieces(args), listener))
                # Read to the end of the utterance, which may come before the end of the text, at a limit for example.
                done = await listener.read(session, one_utterance=True)
                sending.cancel()  # it may still be waiting for text that would not be spoken
        except ExceptionGroup as group:
            raise group.exceptions[-1] from None  # the last error is the reader's, which says why the session ended
        finally:
            progress.close()
    report = listener.meter.report()
    _print_report(report, done)
    return 0 if report.audio_s and not _is_cut(args, done) else 1


def _told(args: argparse.Namespace, progress: Progress, marks: list[Mark]) -> Mapping[type, Callable[[Any], object]]:
    """Return what is done with each kind of message that is not audio. `marks`: are kept there if they are needed."""

    def reached(message: Marks) -> None:
        progress.reach(0, message.marks[-1].text_end)
        if args.subtitles:
            marks.extend(message.marks)

    return {
        UtteranceStarted: lambda told: progress.note(f"voice {told.voice_id or '(unnamed)'}, seed {told.seed}"),
        Warning: lambda warning: progress.note(f"warning: {warning.message} ({warning.code})"),
        Marks: reached,
        Resumed: lambda resumed: progress.note(f"connection lost; resumed after {resumed.gap_s * 1000:.0f} ms"),
        Queued: lambda queued: progress.note(
            f"the server is full: {queued.num_ahead} go first, about {queued.expected_wait_ms / 1000:.1f} s"
        ),
    }


def _is_cut(args: argparse.Namespace, done: UtteranceDone) -> bool:
    """Whether the audio ended before the text although nobody asked for that, which is also told."""
    ended_early = done.reason == FinishReason.FINISH_REASON_MAX_AUDIO and not (args.max_audio_ms or args.max_frames)
    if not ended_early or done.stats.spoken_chars >= done.stats.input_chars:
        return False
    spoken = f"{done.stats.spoken_chars} of {done.stats.input_chars} characters were spoken"
    _note(f"warning: only {spoken}, the longest utterance of this checkpoint; speak a long text in parts")
    return True


def _is_played(args: argparse.Namespace) -> bool:
    return not (args.wav or args.ogg or args.codes or args.raw)


def _check(args: argparse.Namespace) -> None:
    """Raise ValueError for arguments that exclude each other, and if nothing could play the audio."""
    if args.subtitles is not None and bool(args.out_dir) != (args.subtitles.suffix == ""):
        raise ValueError("--subtitles: give a file, FILE.srt or FILE.vtt; with --out-dir, srt or vtt alone")
    if args.out_dir:
        if args.word_by_word or _pause_s(args) or args.encoding != "pcm_s16le":
            raise ValueError("--out-dir: the texts are sent whole, and --format says the encoding")
    elif not args.raw and args.encoding != "pcm_s16le":
        raise ValueError("--encoding is for --raw; files and players have encodings of their own")
    elif _is_played(args):
        audio_out.check_player("--wav FILE or --raw")


def _encoding(args: argparse.Namespace) -> str:
    return "ogg_opus" if args.ogg else "codes" if args.codes else str(args.encoding)


def _output(args: argparse.Namespace, sample_rate_hz: int) -> AbstractAsyncContextManager[audio_out.Write]:
    raw = audio_out.stdout() if args.raw else None
    return audio_out.output(sample_rate_hz, wav=args.wav, encoded=args.ogg or args.codes, raw=raw)


@asynccontextmanager
async def _subtitled(file: Path | None, marks: list[Mark]) -> AsyncIterator[None]:
    """Write the words that have come, also if the speech is broken off: the file of its audio has them, too.

    The file is opened first, so that nobody waits for a whole book to be told that it cannot be written.
    """
    if file is None:
        yield
        return
    with audio_out.new_file(file) as out:
        try:
            yield
        finally:
            out.write(subtitles(marks, file.suffix).encode())


async def _send(session: Session, pieces: AsyncIterator[str], listener: Listener) -> None:
    async for piece in pieces:
        if not piece.isspace():
            listener.text_sent()
        await session.send_text(piece)
    await session.finish()


def _known_text(args: argparse.Namespace) -> str:
    """Return the whole text if it is known and can be sent at once, otherwise ""."""
    if args.word_by_word or _pause_s(args) or args.text == ["-"]:
        return ""
    return _read(args.file) if args.file else " ".join(args.text)


def _pause_s(args: argparse.Namespace) -> float:
    return args.pause_ms / 1000 if args.pause_ms else 60 / args.words_per_minute if args.words_per_minute else 0


async def _pieces(args: argparse.Namespace) -> AsyncIterator[str]:
    """Yield the pieces of text to send, with the pauses between them."""
    pieces = _text(args)
    pause_s = _pause_s(args)
    if args.word_by_word or pause_s:
        pieces = words(pieces)
    async for piece in pieces:
        yield piece
        await asyncio.sleep(pause_s)


async def _text(args: argparse.Namespace) -> AsyncIterator[str]:
    if args.file:
        yield _read(args.file)
    elif args.text and args.text != ["-"]:
        yield " ".join(args.text)
    else:
        async for piece in stdin_text():
            yield piece


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text: {error}") from None


async def words(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    """Cut a text after the white space that follows each word."""
    held = ""
    async for piece in pieces:
        *complete, held = re.split(r"(?<=\s)(?=\S)", held + piece)
        if held[-1:].isspace():
            complete.append(held)
            held = ""
        for word in complete:
            yield word
    if held:
        yield held


def _print_report(report: PlaybackReport, done: UtteranceDone) -> None:
    if not report.audio_s:
        _note("no audio: the text has nothing to speak")
        return
    first = f"{report.ttfa_s * 1000:.0f} ms from the first text to the first audio"
    if not math.isnan(report.ttfa_audible_s):
        first += f", {report.ttfa_audible_s * 1000:.0f} ms to the first sound in it"
    gaps = f"{report.num_gaps} if played at once"
    if report.num_gaps:
        gaps += f": {report.gap_s * 1000:.0f} ms in all, the longest {report.longest_gap_s * 1000:.0f} ms"
    reason = FinishReason.Name(done.reason).removeprefix("FINISH_REASON_").lower()
    _note(f"TTFA   {first}")
    _note(f"RTF    {report.rtf:.3f} from first text to last audio, {done.stats.real_time_factor:.3f} at the server")
    _note(f"gaps   {gaps}")
    _note(f"audio  {report.audio_s:.2f} s, {reason}")


def _note(line: str) -> None:
    print(line, file=sys.stderr)


def _subtitles(value: str) -> Path:
    file = Path(value)
    if f".{value}" in FORMATS:
        return file
    if file.suffix not in FORMATS:
        raise argparse.ArgumentTypeError(f"{value} does not end in {' or '.join(FORMATS)}")
    if not file.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{file.parent} is not a folder")
    return file
