"""`sonorant voices`: lists, creates, moves and deletes the voices of a server."""

import argparse
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToJson

from sonorant.cli.config_arguments import file_of, server_again, whole_number
from sonorant.client.client import SpeechClient
from sonorant.client.configs import synthesis_config
from sonorant.client.listening import audio_out
from sonorant.client.voice_methods import KINDS, kind_name, voice_mix

PREVIEW_TEXT = "Hello! This is how I sound when I read your words aloud."  # of voices without one
EXAMPLES = """\
examples:
  sonorant voices
  sonorant voices create anna --reference anna.wav --transcript "What she says." --consent "Anna, in writing, 2026"
  sonorant voices create giant --design "a deep, slow, friendly voice"
  sonorant voices mix duet anna=0.7 ben=0.3
  sonorant voices preview anna --wav preview.wav
  sonorant voices export anna anna.voice
  sonorant say "Hello." --voice anna --wav hello.wav

The server must have been started with --voices-dir to store voices. See also COMMAND --help.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands; without one, the voices are listed."""
    _add_filters(parser)
    parser.set_defaults(language="", kind="", label=[], run=list_voices)
    common = server_again("voices")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    command = commands.add_parser(
        "list", parents=[common], help="list the voices (the default)", argument_default=argparse.SUPPRESS
    )
    _add_filters(command)
    command.set_defaults(run=list_voices)

    _add_create(commands, common)
    _add_mix(commands, common)
    command = commands.add_parser("show", parents=[common], help="print everything about a voice, as JSON")
    command.add_argument("voice_id", metavar="ID")
    command.set_defaults(run=show)

    command = commands.add_parser("preview", parents=[common], help="hear a voice say its preview text")
    command.add_argument("voice_id", metavar="ID")
    command.add_argument("--wav", type=file_of(".wav"), metavar="FILE", help="write it to a file; default: play it")
    command.set_defaults(run=preview)

    command = commands.add_parser("delete", parents=[common], help="delete a stored voice")
    command.add_argument("voice_id", metavar="ID")
    command.add_argument("--allow-missing", action="store_true", help="succeed also if there is no such voice")
    command.set_defaults(run=delete)

    command = commands.add_parser("export", parents=[common], help="save a stored voice to a file")
    command.add_argument("voice_id", metavar="ID")
    command.add_argument("file", type=Path, metavar="FILE")
    command.set_defaults(run=export)

    command = commands.add_parser("import", parents=[common], help="store the voice of an exported file")
    command.add_argument("file", type=Path, metavar="FILE")
    command.add_argument(
        "voice_id", nargs="?", default="", metavar="ID", help="name of the voice; default: the one it had"
    )
    _add_ttl(command)
    command.set_defaults(run=import_file)


def _add_create(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "create",
        parents=[common],
        help="create a voice from a recording, a description or a speaker embedding",
        description="Create a voice and store it on the server. Prints its id.",
    )
    command.add_argument(
        "voice_id", nargs="?", default="", metavar="ID", help="name of the voice; default: the server chooses one"
    )
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--reference",
        type=Path,
        metavar="FILE",
        help="recording of the speaker to clone: WAV, FLAC, OGG or MP3, 1 to 30 s",
    )
    source.add_argument(
        "--design", default="", metavar="TEXT", help="description of the voice (VoiceDesign checkpoints)"
    )
    source.add_argument(
        "--embedding", type=Path, metavar="FILE", help="speaker embedding: a NumPy file of float32 [hidden]"
    )
    command.add_argument(
        "--transcript", default="", metavar="TEXT", help="the words of the recording, for a closer clone"
    )
    command.add_argument(
        "--consent", default="", metavar="TEXT", help="who agreed to be cloned, and how; it is stored with the voice"
    )
    command.add_argument("--check", action="store_true", help="check everything, but create nothing")
    _add_about(command)
    command.set_defaults(run=create)


def _add_mix(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "mix",
        parents=[common],
        help="create a voice between other voices",
        description="Mix the speaker embeddings of several voices into a new one and store it. Prints its id.",
    )
    command.add_argument("voice_id", metavar="ID", help="name of the new voice")
    command.add_argument(
        "parts", nargs="+", type=_part, metavar="VOICE=WEIGHT", help="2 to 8 voices, each with a weight of 0 or more"
    )
    command.add_argument(
        "--spherical",
        action="store_true",
        help="keep the strength of the voices: mix their directions, not their values",
    )
    _add_about(command)
    command.set_defaults(run=mix)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--language", metavar="NAME", help="list only voices that speak it")
    parser.add_argument("--kind", choices=KINDS, help="list only voices of this kind")
    _add_labels(parser, "list only voices with this label; may be repeated")


def _add_about(parser: argparse.ArgumentParser) -> None:
    about = parser.add_argument_group("about the voice")
    about.add_argument("--display-name", default="", metavar="TEXT")
    about.add_argument("--description", default="", metavar="TEXT")
    about.add_argument("--preview-text", default="", metavar="TEXT", help="what is said to try the voice")
    about.add_argument(
        "--speaks",
        action="append",
        default=[],
        dest="languages",
        metavar="LANGUAGE",
        help="a language it speaks; may be repeated",
    )
    _add_labels(about, "may be repeated")
    parser.set_defaults(label=[])
    _add_ttl(about)
    about.add_argument(
        "--request-id", default="", metavar="ID", help="makes a retry safe: the same id does not create a second voice"
    )


def _add_ttl(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument(
        "--ttl-s", type=whole_number, default=0, metavar="N", help="delete the voice after N seconds; default: never"
    )


def _add_labels(parser: "argparse._ActionsContainer", help: str) -> None:
    parser.add_argument("--label", action="append", type=_label, metavar="NAME=VALUE", help=help)


def _label(text: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not {form}")
    return name, value


def _part(text: str) -> tuple[str, float]:
    voice_id, weight = _label(text, "VOICE=WEIGHT, such as anna=0.7")
    try:
        return voice_id, float(weight)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{weight!r} is not a number") from None


def _about(args: argparse.Namespace) -> dict[str, Any]:
    """What `_add_about` has read, for `create_voice`."""
    named = ("display_name", "description", "preview_text", "languages", "ttl_s", "request_id")
    return {"labels": dict(args.label), **{name: getattr(args, name) for name in named}}


async def list_voices(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        for voice in await client.voices(args.language, kind=args.kind, labels=dict(args.label)):
            print(f"{voice.voice_id:20} {kind_name(voice):10} {', '.join(voice.languages)}".rstrip())
    return 0


async def create(args: argparse.Namespace) -> int:
    if args.transcript and not args.reference:
        raise ValueError("--transcript is what is said in a recording; give --reference, too")
    reference = args.reference.read_bytes() if args.reference else None
    embedding = None if args.embedding is None else _numbers(args.embedding)
    async with SpeechClient(args.server) as client:
        voice = await client.create_voice(
            args.voice_id,
            reference=reference,
            transcript=args.transcript,
            design=args.design,
            speaker_embedding=embedding,
            consent=args.consent,
            validate_only=args.check,
            **_about(args),
        )
    print(f"the voice can be created: {voice.reference_audio_ms} ms of reference" if args.check else voice.voice_id)
    return 0


def _numbers(file: Path) -> list[float]:
    try:
        import numpy as np  # not a dependency of the client: only those who make embeddings need it
    except ImportError:
        raise ValueError("--embedding needs NumPy to read the file: pip install numpy") from None
    try:
        numbers: list[float] = np.load(file, allow_pickle=False).astype(float).ravel().tolist()
    except (EOFError, ValueError, AttributeError):  # NumPy's own message suggests allow_pickle; .npz has no astype
        raise ValueError(f"{file} is not a NumPy file of numbers; write one with numpy.save") from None
    return numbers


async def mix(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        voice = await client.create_voice(
            args.voice_id,
            mix=voice_mix(dict(args.parts), spherical=args.spherical),
            **_about(args),
        )
    print(voice.voice_id)
    return 0


async def show(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        voice = await client.voice(args.voice_id)
    print(MessageToJson(voice, preserving_proto_field_name=True, ensure_ascii=False))
    return 0


async def preview(args: argparse.Namespace) -> int:
    if args.wav is None:
        audio_out.check_player("--wav FILE")
    async with SpeechClient(args.server) as client:
        voice = await client.voice(args.voice_id)
        text = voice.preview_text or PREVIEW_TEXT
        print(text, flush=True)
        clip = await client.synthesize(text, synthesis_config(voice=voice.voice_id))
    if args.wav is None:
        await clip.play()
    else:
        clip.save(args.wav)
    return 0


async def delete(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        await client.delete_voice(args.voice_id, allow_missing=args.allow_missing)
    return 0


async def export(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        voice_file = await client.export_voice(args.voice_id)
    with args.file.open("xb") as file:  # what is there may be the only copy of another voice
        file.write(voice_file)
    return 0


async def import_file(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        voice = await client.import_voice(args.file.read_bytes(), args.voice_id, ttl_s=args.ttl_s)
    print(voice.voice_id)
    return 0
