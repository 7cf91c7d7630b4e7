"""`python -m clients.asr`: speech, or what a recognizer makes of it, in; Sonorant's voice out.

Which words are released when is shown on stderr, and what the waiting cost.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from clients import audio_out
from clients.asr.commit import DEFAULT_AGREEMENT, DEFAULT_MIN_STABILITY, CommitPolicy, ReleasedWord
from clients.asr.hypotheses import Hypothesis, parse
from clients.asr.relay import Relay
from clients.asr.report import summary
from clients.client import DEFAULT_TARGET, Session, SpeechClient, synthesis_config
from clients.config_arguments import whole_number
from clients.errors import SpeechError, from_status, in_words
from clients.stdin import stdin_lines
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.synthesis_pb2 import FinishReason, UtteranceDone, Warning

EXAMPLES = """\
examples:
  python -m clients.asr --wav in.wav --out out.wav               needs pocketsphinx (pip install 'sonorant[asr]')
  python -m clients.asr --wav in.wav --realtime                  at the speed of speech, played
  some-recognizer | python -m clients.asr --out out.wav          one JSON message per line, see docs/asr.md
"""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m clients.asr",
        description="Speak what a speech recognizer hears, as soon as it will not change its mind any more.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--server", default=DEFAULT_TARGET, metavar="HOST:PORT", help="default: %(default)s")
    add("--wav", type=Path, metavar="FILE", help="a recording to recognize, in place of hypotheses on stdin")
    add("--realtime", action="store_true", help="hear the recording at the speed of speech")
    add("--out", type=Path, metavar="FILE", help="into a WAV file (default: play it)")
    add("--voice", default="", metavar="NAME", help="a voice of `sonorant voices`")
    add("--language", default="", metavar="NAME", help="english, en, ... (default: the model decides)")
    add("--seed", type=whole_number, metavar="N", help="the same voice for the same text again")
    add(
        "--min-stability",
        type=float,
        default=DEFAULT_MIN_STABILITY,
        metavar="X",
        help="words that the recognizer gives at least this stability are settled (default: %(default)s)",
    )
    add(
        "--agreement",
        type=int,
        default=DEFAULT_AGREEMENT,
        metavar="N",
        help="without stability, words that N hypotheses in a row agree on are settled (default: %(default)s)",
    )
    return parser


async def run(args: argparse.Namespace) -> int:
    policy = CommitPolicy(min_stability=args.min_stability, agreement=args.agreement)
    if args.out is None and audio_out.player_command(1) is None:
        raise ValueError("neither ffplay nor aplay is installed; say where the audio should go: --out FILE")
    heard = _recording(args.wav, args.realtime) if args.wav else _messages(stdin_lines())
    sampling = {} if args.seed is None else {"seed": args.seed}
    config = synthesis_config(voice=args.voice, language=args.language, **sampling)
    # Played speech is paced by the player, recordings are wanted at once; live text comes at its own pace.
    max_lead_ms = 0 if args.out else None
    async with (
        SpeechClient(args.server) as client,
        client.speak(config, max_lead_ms=max_lead_ms) as session,
        _output(args.out, session.started.audio.sample_rate_hz) as write,
    ):
        listener = _Listener(session, policy, write)
        try:
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(listener.relay.send(heard))
                await listener.receive()
                sending.cancel()  # the server may have ended the session while there is more to come
        except ExceptionGroup as group:
            raise group.exceptions[-1] from None  # the last is the receiver's, which knows why the session ended
    for line in summary(listener.delays_s, policy.num_contradicted, listener.ttfa_s, listener.audio_s):
        _note(line)
    return 0 if listener.audio_s else 1


class _Listener:
    """One session, and what is to be told of it at the end."""

    def __init__(self, session: Session, policy: CommitPolicy, write: audio_out.Write) -> None:
        self.relay = Relay(session, policy, self._released)
        self.delays_s: list[float] = []
        self.ttfa_s: float | None = None
        self._session = session
        self._write = write
        self._num_samples = 0
        self._first_word_s = 0.0

    @property
    def audio_s(self) -> float:
        return self._num_samples / self._session.started.audio.sample_rate_hz

    async def receive(self) -> None:
        async for event in self._session:
            match event.payload:
                case AudioChunk() as audio:
                    if self.ttfa_s is None:
                        self.ttfa_s = time.monotonic() - self._first_word_s
                    self._num_samples += audio.num_samples
                    self._write(audio.data)
                case Warning() as warning:
                    _note(f"warning: {warning.message} ({warning.code})")
                case UtteranceDone() as done:
                    self.relay.done()
                    if done.reason == FinishReason.FINISH_REASON_FAILED:
                        _note(f"{event.utterance_id} failed: {from_status(done.error)}")

    def _released(self, words: Sequence[ReleasedWord]) -> None:
        self._first_word_s = self._first_word_s or time.monotonic()
        self.delays_s += [word.delay_s for word in words]
        _note(f"{words[0].released_s:8.2f} s  {''.join(word.text for word in words).strip()}")


async def _recording(path: Path, realtime: bool) -> AsyncIterator[Hypothesis]:
    try:
        from clients.asr.sphinx import recognize
    except ImportError as error:
        raise ValueError(f"--wav needs pocketsphinx: pip install 'sonorant[asr]' ({error})") from error
    start_s = time.monotonic()
    hypotheses = recognize(path)
    while (hypothesis := await asyncio.to_thread(next, hypotheses, None)) is not None:
        if realtime:
            await asyncio.sleep(start_s + hypothesis.time_s - time.monotonic())
        yield hypothesis


async def _messages(lines: AsyncIterator[str]) -> AsyncIterator[Hypothesis]:
    start_s, number = time.monotonic(), 0
    async for line in lines:
        number += 1
        if not line.strip():
            continue
        try:
            hypotheses = parse(line, time.monotonic() - start_s)
        except ValueError as error:
            raise ValueError(f"line {number} of stdin: {error}") from error
        for hypothesis in hypotheses:
            yield hypothesis


def _output(path: Path | None, sample_rate_hz: int) -> AbstractAsyncContextManager[audio_out.Write]:
    if path is not None:
        return audio_out.wav_file(path, sample_rate_hz)
    command = audio_out.player_command(sample_rate_hz)
    assert command is not None, "checked before"
    return audio_out.player(command)


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exit status: 1 for an error, 2 for wrong usage, 130 after Ctrl-C."""
    args = parser().parse_args(arguments)
    try:
        status = asyncio.run(run(args))
    except (SpeechError, OSError, ValueError) as error:
        _note(f"asr: {in_words(error)}")
        status = 1
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
