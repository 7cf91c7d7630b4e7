"""Command-line arguments that several commands share, most of them for a SynthesisConfig."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from sonorant.client.configs import CONFIG_FIELDS, ENCODINGS, MARKDOWN_PARTS, TEXT_FORMATS, synthesis_config
from sonorant.tts.v1.synthesis_pb2 import Sampling, SynthesisConfig

_SAMPLING = {
    "temperature": "above 1: more varied; below 1: more uniform",
    "top_k": "choose among the N likeliest codes; 0 = all",
    "top_p": "choose among the likeliest codes that together have this probability",
    "repetition_penalty": "above 1: codes that were said before are less likely",
    "seed": "seed of the random numbers: the same text, voice and seed give the same speech",
    "do_sample": "draw codes at random; without it, always the likeliest",
    "subtalker_do_sample": "the same for the codes of the code predictor, which are the finer part of the sound",
    "subtalker_temperature": "see --temperature",
    "subtalker_top_k": "see --top-k",
    "subtalker_top_p": "see --top-p",
    "min_frames": "do not end before N frames of 80 ms",
    "max_frames": "end after N frames of 80 ms",
    "ignore_eos": "do not let the model end: speak until --max-frames",
}


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    _add_audio(parser)
    _add_voice(parser)
    _add_sampling(parser)


def _add_audio(parser: argparse.ArgumentParser) -> None:
    audio = parser.add_argument_group("audio")
    audio.add_argument(
        "--encoding", choices=ENCODINGS, default="pcm_s16le", help="format of the audio; default: %(default)s"
    )
    audio.add_argument(
        "--sample-rate-hz",
        type=whole_number,
        default=0,
        metavar="N",
        help="rate of the samples, 8000 to 48000; default: the model's",
    )
    audio.add_argument(
        "--frame-duration-ms", type=whole_number, default=0, metavar="N", help="duration of the audio in each message"
    )
    audio.add_argument("--bitrate-bps", type=whole_number, default=0, metavar="N", help="bit rate of Opus")
    audio.add_argument("--speed", type=float, metavar="X", help="0.5 (slower) to 2 (faster), at the same pitch")
    audio.add_argument("--volume-gain-db", type=float, metavar="X", help="louder (above 0) or quieter (below 0)")
    audio.add_argument("--max-audio-ms", type=whole_number, default=0, metavar="N", help="stop after this much audio")


def _add_voice(parser: argparse.ArgumentParser) -> None:
    voice = parser.add_argument_group("voice")
    voice.add_argument("--voice", default="", metavar="NAME", help="who speaks: a name that `sonorant voices` lists")
    voice.add_argument(
        "--design", default="", metavar="TEXT", help="description of a voice to make up (VoiceDesign checkpoints)"
    )
    voice.add_argument(
        "--reference", type=Path, metavar="FILE", help="recording of a voice to clone (Base checkpoints)"
    )
    voice.add_argument(
        "--transcript", default="", metavar="TEXT", help="the words of the recording, for a closer clone"
    )
    voice.add_argument("--language", default="", metavar="NAME", help="english, en, ...; default: the model decides")
    voice.add_argument(
        "--pronounce",
        type=pronunciation,
        action="append",
        default=[],
        dest="pronunciations",
        metavar="PHRASE=SPELLING",
        help="how to say a phrase, such as SQL=sequel; may be repeated",
    )
    voice.add_argument(
        "--dictionary",
        action="append",
        default=[],
        dest="dictionaries",
        metavar="ID[@VERSION]",
        help="a pronunciation dictionary of the server; may be repeated, and the first one that has a phrase counts",
    )
    voice.add_argument(
        "--text-format", choices=TEXT_FORMATS, default="", help="how the text is written; default: the server's, plain"
    )
    voice.add_argument(
        "--leave-out",
        choices=MARKDOWN_PARTS,
        action="append",
        default=[],
        help="what of markdown is not said: code blocks, tables, addresses; may be repeated",
    )
    voice.add_argument(
        "--directions", action="store_true", help='follow directions in the text: "[whispering]", "[pause 500ms]"'
    )
    voice.add_argument("--instructions", default="", metavar="TEXT", help="how to speak, in plain words")


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    sampling = parser.add_argument_group("sampling (defaults come from the checkpoint)")
    sampling.add_argument(
        "--non-streaming-mode",
        action=argparse.BooleanOptionalAction,
        help="wait for the whole text before speech begins, as the published code does",
    )
    for field in Sampling.DESCRIPTOR.fields:
        sampling.add_argument("--" + field.name.replace("_", "-"), help=_SAMPLING[field.name], **_argument_of(field))


def server_again(command: str) -> argparse.ArgumentParser:
    """Return a parent for the subcommands of a command, so that --server can also follow their names."""
    parent = argparse.ArgumentParser(add_help=False)
    # A default here would override --server if it is given before the subcommand.
    parent.add_argument(
        "--server", default=argparse.SUPPRESS, metavar="HOST:PORT", help=f"see `sonorant {command} --help`"
    )
    return parent


def whole_number(text: str) -> int:
    """argparse type for a field of type uint32."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {2**32 - 1}")
    return int(text)


_WRITERS = {
    **dict.fromkeys((".mp3", ".flac", ".opus"), "--file FILE --out-dir DIR --format {}"),
    ".wav": "--wav FILE",
    ".ogg": "--ogg FILE",
    ".codes": "--codes FILE",
    ".pcm": "--raw > FILE",
    ".ulaw": "--encoding mulaw --raw > FILE",
    ".alaw": "--encoding alaw --raw > FILE",
}
# Of audio and video that nothing here writes. Python's table of types is another on each machine.
_OTHERS = {".aac", ".aif", ".aiff", ".avi", ".m4a", ".mkv", ".mov", ".mp2", ".mp4", ".mpeg", ".mpg", ".webm", ".wma"}


def file_of(*suffixes: str) -> Callable[[str], Path]:
    """Return an argparse type for a file to write, whose name may not be that of audio of another kind."""

    def path_of(text: str) -> Path:
        path = Path(text)
        suffix = path.suffix.lower()
        if suffix not in suffixes and (suffix in _WRITERS or suffix in _OTHERS):
            other = f", or write it by sonorant say {_WRITERS[suffix].format(suffix[1:])}" if suffix in _WRITERS else ""
            raise argparse.ArgumentTypeError(f"{text} would be a {suffixes[0]} file; name it so{other}")
        return path

    return path_of


def config_of(args: argparse.Namespace, encoding: str) -> SynthesisConfig:
    """Return the config of the arguments, which are named as the parameters of `synthesis_config` are."""
    names = {*CONFIG_FIELDS, *(field.name for field in Sampling.DESCRIPTOR.fields)}
    given = {name: value for name, value in vars(args).items() if name in names and value is not None}
    given |= {"encoding": encoding, "pronunciations": dict(args.pronunciations)}
    if args.reference:
        given["reference"] = args.reference.read_bytes()
    return synthesis_config(**given)


def pronunciation(text: str) -> tuple[str, str]:
    """Read PHRASE=SPELLING."""
    phrase, equals, spelling = text.partition("=")
    if not (phrase and equals and spelling):
        raise argparse.ArgumentTypeError(f"{text!r} is not PHRASE=SPELLING, as in SQL=sequel")
    return phrase, spelling


def _argument_of(field: FieldDescriptor) -> dict[str, Any]:
    """Keyword arguments of `add_argument` for an optional field of a message."""
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"action": argparse.BooleanOptionalAction}
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return {"type": float, "metavar": "X"}
    return {"type": whole_number, "metavar": "N"}
