"""`sonorant decode`: turns stored codes into speech, in a file, on stdout or through the sound card."""

import argparse
import sys
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from sonorant.cli.config_arguments import file_of, whole_number
from sonorant.client.client import SpeechClient
from sonorant.client.configs import ENCODINGS
from sonorant.client.listening import audio_out
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.text_to_speech_service_pb2 import DecodeStarted

EXAMPLES = """\
examples:
  sonorant say "Hello, world." --codes hello.codes              store it, 277 bytes a second
  sonorant decode hello.codes                                   play it (needs ffplay or aplay)
  sonorant decode hello.codes --wav hello.wav --speed 1.2
  sonorant decode hello.codes --encoding mulaw --raw > phone.ulaw
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    parser.add_argument("file", type=Path, help="codes of one utterance, as `sonorant say --codes` writes them")
    output = parser.add_argument_group(
        "where the audio goes (give one; without any, it is played)"
    ).add_mutually_exclusive_group()
    output.add_argument("--wav", type=file_of(".wav"), metavar="FILE", help="write a WAV file")
    output.add_argument("--ogg", type=file_of(".ogg", ".opus"), metavar="FILE", help="write an Ogg Opus file")
    output.add_argument("--raw", action="store_true", help="write the bytes to stdout, as they come")
    sound = parser.add_argument_group("how it sounds")
    encodings = [name for name in ENCODINGS if name not in ("codes", "flac")]
    sound.add_argument(
        "--encoding", choices=encodings, default="pcm_s16le", help="format of --raw; default: %(default)s"
    )
    sound.add_argument(
        "--sample-rate-hz", type=whole_number, metavar="N", default=0, help="rate of the samples, 8000 to 48000"
    )
    sound.add_argument("--bitrate-bps", type=whole_number, metavar="N", default=0, help="bit rate of Opus")
    sound.add_argument("--speed", type=float, metavar="X", help="0.5 (slower) to 2 (faster), at the same pitch")
    sound.add_argument("--volume-gain-db", type=float, metavar="X", help="louder (up to 16) or quieter (down to -96)")


async def run(args: argparse.Namespace) -> int:
    """Decode the file; return the exit status."""
    if not args.raw and args.encoding != "pcm_s16le":
        raise ValueError("--encoding is for --raw; files and players have encodings of their own")
    if not (args.wav or args.ogg or args.raw):
        audio_out.check_player("--wav FILE or --raw")
    codes = args.file.read_bytes()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(SpeechClient(args.server))
        decoded = client.decode(
            codes,
            encoding="ogg_opus" if args.ogg else args.encoding,
            sample_rate_hz=args.sample_rate_hz,
            bitrate_bps=args.bitrate_bps,
            speed=args.speed,
            volume_gain_db=args.volume_gain_db,
        )
        write = None
        async for payload in await stack.enter_async_context(aclosing(decoded)):
            if isinstance(payload, DecodeStarted):
                rate_hz, raw = payload.audio.sample_rate_hz, audio_out.stdout() if args.raw else None
                output = audio_out.output(rate_hz, wav=args.wav, encoded=args.ogg, raw=raw)
                write = await stack.enter_async_context(output)
                print(f"{payload.audio_ms / 1000:.2f} s, spoken by checkpoint {payload.checkpoint}", file=sys.stderr)
            elif isinstance(payload, AudioChunk) and write is not None:
                write(payload.data)
    return 0
