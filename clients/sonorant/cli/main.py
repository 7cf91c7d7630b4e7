"""The `sonorant` command: one function per subcommand, errors as one line on stderr."""

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from grpc import StatusCode

from sonorant.bench import arguments as bench
from sonorant.cli import decode, dictionaries, explain, plan, say, voices
from sonorant.client import __version__
from sonorant.client.client import DEFAULT_TARGET, SpeechClient
from sonorant.client.errors import SpeechError, error_text
from sonorant.client.interrupts import run_until_signal
from sonorant.client.local_server import ServerFailed, run_server_command

EXAMPLES = """\
examples:
  sonorant say "Hello, world." --wav hello.wav
  sonorant voices
  sonorant health --server gpu-host:50051

environment:
  SONORANT_CLIENT_API_KEY                       key for a server that needs one
  SONORANT_CLIENT_TLS=1                         TLS, with the usual authorities
  SONORANT_CLIENT_CA                            TLS, with the authority in this PEM file
  SONORANT_CLIENT_CERTIFICATE, SONORANT_CLIENT_KEY  PEM files, for mutual TLS
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Leave out the usage: forty lines of it would hide the message."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parser() -> Parser:
    parser = Parser(
        prog="sonorant",
        description="Talk to a Sonorant speech server.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    common = Parser(add_help=False)
    common.add_argument(
        "--server", default=DEFAULT_TARGET, metavar="HOST:PORT", help="server to call; default: %(default)s"
    )
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def add(name: str, module: ModuleType, help: str, description: str, *parents: Parser) -> Parser:
        command = commands.add_parser(
            name,
            parents=parents,
            help=help,
            description=description,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)  # and what runs it
        return command

    description = "Speak a text. The text may still be growing: it is sent as it arrives, while audio comes back."
    add("say", say, "speak a text", description, common)
    description = "Speak the codes that `sonorant say --codes` stored. The audio is the same; only the codec runs."
    add("decode", decode, "speak stored codes again", description, common)
    description = "Show tokens, prompt, settings and limits of a text, or why it is refused, without speaking it."
    add("explain", explain, "show how a text would be spoken", description, common)
    summary = "put load on a server and measure what its listeners get"
    add("bench", bench, summary, bench.DESCRIPTION).set_defaults(run=_bench)
    description = "Work out how many GPUs a number of simultaneous calls needs, from the measured capacity of one GPU."
    add("plan", plan, "work out how many GPUs a number of calls needs", description)
    description = "List, put, show and delete a server's pronunciation dictionaries. Without a command, list them."
    add("dictionaries", dictionaries, "list, put, show and delete pronunciation dictionaries", description, common)
    description = "List, create, move and delete the voices of a server. Without a command, list them."
    add("voices", voices, "list, create, move and delete voices", description, common)

    for run, help in (
        (capabilities, "print what the server can do, as JSON"),
        (usage, "print what the API key has used and has left, as JSON"),
        (health, "print the health status; exit status 0 only if it is SERVING"),
    ):
        description = f"{help[0].upper()}{help[1:]}."
        commands.add_parser(run.__name__, parents=[common], help=help, description=description).set_defaults(run=run)
    command = commands.add_parser(
        "doctor", add_help=False, help="check this machine and a checkpoint (runs sonorant-server doctor)"
    )
    command.set_defaults(run=doctor)
    return parser


async def _bench(args: argparse.Namespace) -> int:
    from sonorant.bench import command  # no other command needs what it imports

    return await command.run(args)


async def doctor(args: argparse.Namespace) -> int:
    return await run_server_command("doctor", *args.settings)


async def capabilities(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        _print(await client.capabilities())
    return 0


async def usage(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        _print(await client.usage())
    return 0


def _print(message: Message) -> None:
    print(MessageToJson(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))


async def health(args: argparse.Namespace) -> int:
    async with SpeechClient(args.server) as client:
        status = await client.health()
    print(status)
    return 0 if status == "SERVING" else 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exit status: 1 for an error, 2 for wrong usage, 130 after Ctrl-C or SIGTERM."""
    commands = parser()
    args, rest = commands.parse_known_args(arguments)
    if args.run is doctor:
        args.settings = rest  # the server parses these itself
    elif rest and "text" in args and not any(word.startswith("-") for word in rest):
        args.text += rest  # argparse takes the words of a text only as far as the first option behind one
    elif rest:
        commands.error(f"unrecognized arguments: {' '.join(rest)}")
    elif args.run is None:
        commands.print_help(sys.stderr)
        sys.exit(2)
    try:
        status = run_until_signal(args.run(args))
    except SpeechError as error:
        fields = [f"{field}: {text}" for field, text in error.fields.items()]
        hint = "; put it into SONORANT_CLIENT_API_KEY" if error.code is StatusCode.UNAUTHENTICATED else ""
        status = _print_error("\n  ".join([f"{error}{hint}", *(text for text in fields if text not in str(error))]))
    except BrokenPipeError:  # the reader of our stdout is gone; keep the interpreter from flushing into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except UnicodeEncodeError as error:  # Python keeps bytes of arguments that are no text as halves of surrogate pairs
        status = _print_error(f"{error.object!a} is not UTF-8 text")
    except (OSError, ValueError, ServerFailed) as error:
        status = _print_error(error_text(error))
    sys.exit(status)


def _print_error(message: str) -> int:
    print(f"sonorant: {message}", file=sys.stderr)
    return 1
