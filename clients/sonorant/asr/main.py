"""`python -m sonorant.asr`: recognizes speech, or reads a recognizer's hypotheses, and speaks them in Sonorant's voice.

Prints on stderr when each word was released, and how much delay the waiting caused.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from sonorant.asr.commit import DEFAULT_AGREEMENT, DEFAULT_MIN_STABILITY, CommitPolicy, ReleasedWord
from sonorant.asr.draft import DEFAULT_AGREEMENT as DRAFT_AGREEMENT
from sonorant.asr.draft import Draft
from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.recognizers import Messages
from sonorant.asr.relay import Relay, RevisingRelay
from sonorant.asr.report import summary
from sonorant.cli.config_arguments import whole_number
from sonorant.cli.stdin import stdin_lines
from sonorant.client.client import DEFAULT_TARGET, SpeechClient
from sonorant.client.configs import LONGEST_IDLE_MS, synthesis_config
from sonorant.client.errors import SpeechError, error_text, from_status
from sonorant.client.events import Event
from sonorant.client.interrupts import run_until_signal
from sonorant.client.listening import audio_out
from sonorant.client.listening.listener import Listener
from sonorant.client.listening.playback import PlaybackMeter
from sonorant.client.speaking.session import Session
from sonorant.tts.v1.synthesis_pb2 import FinishReason, UtteranceDone, Warning

SENT_S = 1.0  # after the session's end, within which all was sent if its end was ours
REVISABLE_LEAD_MS = 300  # short, because audio that was sent cannot be revised

EXAMPLES = """\
examples:
  python -m sonorant.asr --wav in.wav --out out.wav               needs pocketsphinx (pip install 'sonorant[asr]')
  python -m sonorant.asr --wav in.wav --realtime                  recognize as if live, and play the speech
  some-recognizer | python -m sonorant.asr --out out.wav          one JSON message per line, see docs/asr.md
"""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sonorant.asr",
        description="Speak the words of a speech recognizer as soon as it will not change them any more.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--server", default=DEFAULT_TARGET, metavar="HOST:PORT", help="server to call; default: %(default)s")
    add("--wav", type=Path, metavar="FILE", help="recording to recognize, instead of hypotheses from stdin")
    add("--realtime", action="store_true", help="recognize the recording at the speed of speech, as if live")
    add("--out", type=Path, metavar="FILE", help="write a WAV file; default: play the speech")
    add("--voice", default="", metavar="NAME", help="who speaks: a name that `sonorant voices` lists")
    add("--language", default="", metavar="NAME", help="english, en, ... (default: the model decides)")
    add(
        "--seed",
        type=whole_number,
        metavar="N",
        help="seed of the random numbers: the same text and seed give the same speech",
    )
    add(
        "--min-stability",
        type=float,
        default=DEFAULT_MIN_STABILITY,
        metavar="X",
        help="words with at least this stability are settled (default: %(default)s)",
    )
    add(
        "--agreement",
        type=int,
        metavar="N",
        help="without stability, words are settled once N hypotheses in a row agree on them "
        f"(default: {DEFAULT_AGREEMENT})",
    )
    add(
        "--revise",
        action="store_true",
        help="speak in phrases, each when the listener is about to wait, and correct them while nobody has heard them; "
        f"the default of --agreement is then {DRAFT_AGREEMENT}",
    )
    return parser


async def run(args: argparse.Namespace) -> int:
    policy: CommitPolicy | Draft
    if args.revise:
        policy = Draft(DRAFT_AGREEMENT if args.agreement is None else args.agreement)
    else:
        agreement = DEFAULT_AGREEMENT if args.agreement is None else args.agreement
        policy = CommitPolicy(min_stability=args.min_stability, agreement=agreement)
    if args.out is None:
        audio_out.check_player("--out FILE")
    heard = _recording(args.wav, args.realtime) if args.wav else _messages(stdin_lines())
    sampling = {} if args.seed is None else {"seed": args.seed}
    config = synthesis_config(voice=args.voice, language=args.language, **sampling)
    # Played speech needs the server's pace; a file is written as fast as possible.
    max_lead_ms = 0 if args.out else REVISABLE_LEAD_MS if args.revise else None
    async with (
        SpeechClient(args.server) as client,
        client.speak(config, max_lead_ms=max_lead_ms, idle_timeout_ms=LONGEST_IDLE_MS) as session,
        _output(args.out, session.started.audio.sample_rate_hz) as write,
    ):
        interpreter = _Interpreter(session, policy, write)
        try:
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(interpreter.relay.send(heard))
                await interpreter.listener.read(interpreter.events(session))
                await asyncio.wait([sending], timeout=SENT_S)
                is_cut = sending.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[-1] from None  # the last error is the reader's, which says why the session ended
    report = interpreter.listener.meter.report()
    ttfa_s = report.ttfa_s if report.audio_s else None
    for line in summary(interpreter.delays_s, policy.num_contradicted, ttfa_s, report.audio_s):
        _note(line)
    if is_cut:
        idle_min = session.started.idle_timeout_ms / 60_000
        _note(f"asr: the server ended the session; it does so after {idle_min:g} min without a word")
    return 0 if report.audio_s and not is_cut else 1


class _Interpreter:
    """One session, and the figures for the report at its end."""

    def __init__(self, session: Session, policy: CommitPolicy | Draft, write: audio_out.Write) -> None:
        relay: Relay | RevisingRelay
        if isinstance(policy, Draft):
            relay = RevisingRelay(session, policy, self._released, self._sent)
        else:
            relay = Relay(session, policy, self._released, self._sent)
        self.relay = relay
        self.delays_s: list[float] = []
        self.listener = Listener(
            PlaybackMeter(session.started.audio.sample_rate_hz),
            on_audio=write,
            on_done=self._done,
            on={Warning: lambda warning: _note(f"warning: {warning.message} ({warning.code})")},
        )

    async def events(self, session: Session) -> AsyncIterator[Event]:
        async for event in session:
            self.relay.take(event)
            yield event

    def _done(self, done: UtteranceDone, utterance_id: str) -> None:
        if done.reason == FinishReason.FINISH_REASON_FAILED:
            _note(f"{utterance_id} failed: {from_status(done.error)}")

    def _sent(self) -> None:
        self.listener.text_sent()

    def _released(self, words: Sequence[ReleasedWord]) -> None:
        self.delays_s += [word.delay_s for word in words]
        _note(f"{words[0].released_s:8.2f} s  {''.join(word.text for word in words).strip()}")


async def _recording(path: Path, realtime: bool) -> AsyncIterator[Hypothesis]:
    try:
        from sonorant.asr.sphinx import recognize
    except ImportError as error:
        raise ValueError(f"--wav needs pocketsphinx: pip install 'sonorant[asr]' ({error})") from error
    start_s = time.monotonic()
    hypotheses = recognize(path)
    while (hypothesis := await asyncio.to_thread(next, hypotheses, None)) is not None:
        if realtime:
            await asyncio.sleep(start_s + hypothesis.time_s - time.monotonic())
        yield hypothesis


async def _messages(lines: AsyncIterator[str]) -> AsyncIterator[Hypothesis]:
    messages = Messages()
    start_s, number = time.monotonic(), 0
    async for line in lines:
        number += 1
        if not line.strip():
            continue
        try:
            hypotheses = messages.parse(line, time.monotonic() - start_s)
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
    """Entry point. Exit status: 1 for an error, 2 for wrong usage, 130 after Ctrl-C or SIGTERM."""
    args = parser().parse_args(arguments)
    try:
        status = run_until_signal(run(args))
    except (SpeechError, OSError, ValueError) as error:
        _note(f"asr: {error_text(error)}")
        status = 1
    sys.exit(status)
