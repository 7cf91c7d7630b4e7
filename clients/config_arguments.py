"""A SynthesisConfig on the command line: the settings that every command which speaks, or would speak, has."""

import argparse
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from clients.client import ENCODINGS, synthesis_config
from sonorant.tts.v1.synthesis_pb2 import Sampling, SynthesisConfig


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    audio = parser.add_argument_group("audio")
    audio.add_argument("--encoding", choices=ENCODINGS, default="pcm_s16le", help="default: %(default)s")
    audio.add_argument("--sample-rate-hz", type=whole_number, default=0, metavar="N", help="default: the model's")
    audio.add_argument("--frame-duration-ms", type=whole_number, default=0, metavar="N", help="audio per message")
    audio.add_argument("--bitrate-bps", type=whole_number, default=0, metavar="N", help="of Opus")
    audio.add_argument("--speed", type=float, metavar="X", help="0.5 to 2, at the same pitch")
    audio.add_argument("--volume-gain-db", type=float, metavar="X", help="louder or quieter")
    audio.add_argument("--max-audio-ms", type=whole_number, default=0, metavar="N", help="stop after so much audio")

    voice = parser.add_argument_group("voice")
    voice.add_argument("--voice", default="", metavar="NAME", help="a voice of `sonorant voices`")
    voice.add_argument("--design", default="", metavar="TEXT", help="describe the voice (VoiceDesign checkpoints)")
    voice.add_argument("--reference", type=Path, metavar="FILE", help="a recording of the voice (Base checkpoints)")
    voice.add_argument("--transcript", default="", metavar="TEXT", help="what is said in it")
    voice.add_argument("--language", default="", metavar="NAME", help="english, en, ... (default: the model decides)")
    voice.add_argument(
        "--pronounce",
        type=_pronunciation,
        action="append",
        metavar="PHRASE=SPELLING",
        help="say a phrase so, repeatable",
    )
    voice.add_argument("--instructions", default="", metavar="TEXT", help="how to speak, in plain language")

    sampling = parser.add_argument_group("sampling (defaults come from the checkpoint)")
    sampling.add_argument(
        "--non-streaming-mode",
        action=argparse.BooleanOptionalAction,
        help="put all text into the prompt: speech begins after the end of the text",
    )
    for field in Sampling.DESCRIPTOR.fields:
        sampling.add_argument("--" + field.name.replace("_", "-"), **_argument_of(field))


def whole_number(text: str) -> int:
    """Type of an argument that becomes a field of type uint32."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {2**32 - 1}")
    return int(text)


def config_of(args: argparse.Namespace, encoding: str) -> SynthesisConfig:
    values = {field.name: getattr(args, field.name) for field in Sampling.DESCRIPTOR.fields}
    return synthesis_config(
        voice=args.voice,
        design=args.design,
        reference=args.reference.read_bytes() if args.reference else None,
        transcript=args.transcript,
        language=args.language,
        instructions=args.instructions,
        encoding=encoding,
        sample_rate_hz=args.sample_rate_hz,
        frame_duration_ms=args.frame_duration_ms,
        bitrate_bps=args.bitrate_bps,
        speed=args.speed,
        volume_gain_db=args.volume_gain_db,
        max_audio_ms=args.max_audio_ms,
        pronunciations=dict(args.pronounce or ()),
        non_streaming_mode=args.non_streaming_mode,
        **{name: value for name, value in values.items() if value is not None},
    )


def _pronunciation(text: str) -> tuple[str, str]:
    phrase, equals, spelling = text.partition("=")
    if not (phrase and equals and spelling):
        raise argparse.ArgumentTypeError(f"{text!r} is not PHRASE=SPELLING, as in SQL=sequel")
    return phrase, spelling


def _argument_of(field: FieldDescriptor) -> dict[str, Any]:
    """argparse's keywords for an optional field of a message."""
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"action": argparse.BooleanOptionalAction}
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return {"type": float, "metavar": "X"}
    return {"type": whole_number, "metavar": "N"}
