"""`sonorant dictionaries`: lists, makes, shows and deletes the pronunciation dictionaries that a server keeps."""

import argparse
import json
from pathlib import Path

from google.protobuf.json_format import MessageToJson

from sonorant.cli.config_arguments import pronunciation, server_again, whole_number
from sonorant.client.client import SpeechClient

EXAMPLES = """\
examples:
  sonorant dictionaries
  sonorant dictionaries put medical --file medical.json
  sonorant dictionaries put names Nguyen=win Siobhan=shivawn
  sonorant dictionaries show names --version 1
  sonorant say "Nguyen called." --dictionary names --wav call.wav

medical.json: {"SQL": "sequel", "dB": "decibels"}. The server must have been started with --voices-dir or --voices-url.
See also COMMAND --help.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands; without one, the dictionaries are listed."""
    parser.set_defaults(run=list_dictionaries)
    common = server_again("dictionaries")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    command = commands.add_parser("list", parents=[common], help="list the dictionaries (the default)")
    command.set_defaults(run=list_dictionaries)

    command = commands.add_parser(
        "put",
        parents=[common],
        help="make a dictionary, or its next version",
        description="Make a dictionary of all these phrases, or its next version. Prints ID@VERSION.",
    )
    command.add_argument("dictionary_id", metavar="ID")
    command.add_argument(
        "phrases", nargs="*", type=pronunciation, metavar="PHRASE=SPELLING", help="how to say a phrase: SQL=sequel"
    )
    command.add_argument("--file", type=Path, metavar="FILE", help="more phrases, as an object in JSON")
    command.set_defaults(run=put)

    command = commands.add_parser("show", parents=[common], help="print a dictionary with its phrases, as JSON")
    command.add_argument("dictionary_id", metavar="ID")
    command.add_argument("--version", type=whole_number, default=0, metavar="N", help="default: the newest one")
    command.set_defaults(run=show)

    command = commands.add_parser("delete", parents=[common], help="delete a dictionary with all its versions")
    command.add_argument("dictionary_id", metavar="ID")
    command.add_argument("--allow-missing", action="store_true", help="succeed also if there is no such dictionary")
    command.set_defaults(run=delete)


async def list_dictionaries(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        for dictionary in await client.dictionaries():
            print(f"{dictionary.dictionary_id}@{dictionary.version}\t{dictionary.num_phrases} phrases")
    return 0


async def put(args: argparse.Namespace) -> int:
    phrases = {**(_in_file(args.file) if args.file else {}), **dict(args.phrases)}
    async with SpeechClient(args.server) as client:
        made = await client.put_dictionary(args.dictionary_id, phrases)
    print(f"{made.dictionary_id}@{made.version}")
    return 0


async def show(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        dictionary = await client.dictionary(args.dictionary_id, args.version)
    print(MessageToJson(dictionary, preserving_proto_field_name=True, ensure_ascii=False))
    return 0


async def delete(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        await client.delete_dictionary(args.dictionary_id, allow_missing=args.allow_missing)
    return 0


def _in_file(file: Path) -> dict[str, str]:
    try:
        phrases = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    if not isinstance(phrases, dict) or not all(isinstance(said, str) for said in phrases.values()):
        raise ValueError(f'{file} must be an object of phrases and what is said for them: {{"SQL": "sequel"}}')
    return phrases
