"""`python -m sonorant.training.evaluation.recite LINES --out FOLDER`: a server speaks each line into a WAV file.

A line is `VOICE<TAB>TEXT`; with --references DIR the voice is cloned from DIR/VOICE.wav.
Writes FOLDER/00000.wav ... in the order of the lines, and report.jsonl with the figures of each.
"""

import argparse
import asyncio
import json
import re
import sys
import time
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sonorant.client.client import SpeechClient
from sonorant.client.configs import synthesis_config
from sonorant.client.errors import SpeechError
from sonorant.client.interrupts import run_until_signal
from sonorant.client.listening.listener import Listener
from sonorant.client.listening.playback import PlaybackMeter
from sonorant.client.local_server import ServerFailed, local_server
from sonorant.tts.v1.synthesis_pb2 import FinishReason, SynthesisConfig


async def recite(args: argparse.Namespace) -> int:
    lines = [line.split("\t", 1) for line in args.lines.read_text(encoding="utf-8").splitlines()]
    args.out.mkdir(parents=True, exist_ok=True)
    sampling = {} if args.temperature is None else _sampling(args.temperature)
    slots = asyncio.Semaphore(args.parallel)

    async with _server(args) as target, SpeechClient(target) as client:

        async def line(number: int, voice: str, text: str) -> dict[str, Any]:
            config = synthesis_config(
                encoding="pcm_s16le",
                language=args.language,
                non_streaming_mode=args.non_streaming_mode,
                **_voice(args, voice),
                **sampling,
            )
            async with slots:
                report = await _speak(client, config, text, args.out / f"{number:05d}.wav", whole=args.one_shot)
            return {"number": number, "voice": voice, "language": args.language, "text": text, **report}

        reports = await asyncio.gather(*(line(i, voice, text) for i, (voice, text) in enumerate(lines)))
    (args.out / "report.jsonl").write_text("".join(json.dumps(report) + "\n" for report in reports), encoding="utf-8")
    return 0


def _voice(args: argparse.Namespace, name: str) -> dict[str, Any]:
    if not args.references:
        return {"voice": name}
    transcript = (args.references / f"{name}.txt").read_text(encoding="utf-8").strip() if args.transcripts else ""
    return {"reference": (args.references / f"{name}.wav").read_bytes(), "transcript": transcript}


async def _speak(
    client: SpeechClient, config: SynthesisConfig, text: str, path: Path, *, whole: bool
) -> dict[str, Any]:
    """Speak a text into a WAV file and return its figures. The text is sent word by word while audio comes in; with
    `whole`, it is one request, answered with the whole clip."""
    began_s = time.monotonic()
    if whole:
        answer = await client.synthesize(text, config)
        _write_wav(path, answer.audio, answer.format.sample_rate_hz)
        return {
            "audio_s": len(answer.audio) / 2 / answer.format.sample_rate_hz,
            "elapsed_s": time.monotonic() - began_s,
            "finish_reason": FinishReason.Name(answer.reason),
        }
    audio = bytearray()
    async with client.speak(config, max_lead_ms=0) as session:
        rate_hz = session.started.audio.sample_rate_hz
        listener = Listener(PlaybackMeter(rate_hz), on_audio=audio.extend, on_done=lambda *_: None)
        listener.text_sent()
        for piece in re.split(r"(?<=\s)(?=\S)", text):
            await session.send_text(piece)
        await session.finish()
        done = await listener.read(session)
    _write_wav(path, bytes(audio), rate_hz)
    report = listener.meter.report()
    return {
        "audio_s": report.audio_s,
        "elapsed_s": report.elapsed_s,
        "ttfa_s": report.ttfa_s,
        "finish_reason": FinishReason.Name(done.reason),
    }


def _sampling(temperature: float) -> dict[str, Any]:
    """Sampling of talker and code predictor at one temperature, with the published top-k; 0 = greedy."""
    if temperature == 0:
        return {"do_sample": False, "subtalker_do_sample": False}
    values = {"do_sample": True, "temperature": temperature, "top_k": 50}
    return values | {f"subtalker_{name}": value for name, value in values.items()} | {"seed": 1}


@asynccontextmanager
async def _server(args: argparse.Namespace) -> AsyncIterator[str]:
    if args.server:
        yield args.server
        return
    async with local_server(["--model", str(args.model)] if args.model else []) as target:
        yield target


def _write_wav(path: Path, data: bytes, rate_hz: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(data)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sonorant.training.evaluation.recite", description=__doc__)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--server", default="", help="HOST:PORT of the server; default: start one")
    parser.add_argument("--model", type=Path, help="checkpoint of the started server; default: the built-in one")
    parser.add_argument("--references", type=Path, metavar="DIR", help="recordings of the voices, for Base checkpoints")
    parser.add_argument(
        "--transcripts", action="store_true", help="clone with the words of the recordings, in DIR/VOICE.txt"
    )
    parser.add_argument("--language", default="", help="of all lines; default: the server's, and English for the judge")
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument(
        "--temperature", type=float, help="for all sampling; 0: always the likeliest; default: the checkpoint's"
    )
    parser.add_argument("--non-streaming-mode", action=argparse.BooleanOptionalAction)
    parser.add_argument("--one-shot", action="store_true", help="call Synthesize, not Speak")
    try:
        status = run_until_signal(recite(parser.parse_args()))
    except (ServerFailed, SpeechError, OSError, ValueError) as error:
        print(f"recite: {error}", file=sys.stderr)
        status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
