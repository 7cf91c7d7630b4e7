"""The command line of `sonorant bench`, and the loads and the speech that it specifies."""

import argparse
import importlib.util
import json
import math
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sonorant.bench import texts
from sonorant.bench.client_processes import num_processes
from sonorant.bench.loads import Load, Protocol, SpokenLoad, Target
from sonorant.bench.voices import TASKS, Voices, voices_in

OPENAI_BY: dict[str, Protocol] = {
    "bytes": "openai",
    "events": "openai-events",
    "websocket": "openai-websocket",
    "cartesia": "cartesia",
}
LISTENER_LEAD_MS = 2000  # default lead of paced loads
_RUN = secrets.token_bytes(8)  # no recording of another run has the same bytes
LISTENERS_PER_S = 100  # how fast the listeners of paced loads join, during the warm-up

DESCRIPTION = """\
Put load on a server and measure, at the client, what its listeners get.

loads
  --closed N   N speakers, each of which begins its next utterance when the one before is over
  --open R     R utterances per second begin at random (Poisson), whatever the server does
  --paced N    N listeners hear one utterance after another without a pause, each in one long session

table
  TTFA         from opening the call to the first audio received; from text: from the first text sent;
               planned: from the planned beginning, so that the delay of a late client counts
  audible      to the first sound (-45 dBFS), as heard by a listener without a start buffer
  RTF          from the first text sent to the last audio received, per second of audio
  underruns    share of the utterances in which that listener had to wait after the first audio
  gap max      the longest such wait, ms; c50, c100, c200: share without a wait of more than 50, 100, 200 ms
  audio-s/s    audio received within the measured time, over that time
"""

EXAMPLES = """\
examples:
  sonorant bench --frames 50
  sonorant bench --server gpu-host:50051 --closed 1 64 --open 20 100 --paced 1000 --frames 69 --json result.json
  sonorant bench --server-arguments "--model qwen3-tts-12hz-1.7b-customvoice --load-format dummy" --frames 69
  sonorant bench --server 127.0.0.1:50051 --openai http://127.0.0.1:8000/v1 --openai-model NAME --open 10 --repeats 3
  sonorant bench --server 127.0.0.1:50051 --task clone --recordings 64 --closed 16 64
  sonorant bench --compare before.json after.json
"""


def number(what: str, fits: Callable[[Any], bool], parse: Callable[[str], Any] = float) -> Callable[[str], Any]:
    """Make an argparse type for numbers that fit; `what` describes them in the error."""

    def checked(text: str) -> Any:
        if not fits(value := parse(text)):
            raise argparse.ArgumentTypeError(f"{text} is not {what}")
        return value

    return checked


positive = number("greater than 0", lambda value: 0 < value < math.inf)
positive_int = number("at least 1", lambda value: value >= 1, int)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_servers(parser)
    _add_loads(parser)
    _add_speech(parser)
    _add_client(parser)
    _add_output(parser)


def _add_servers(parser: argparse.ArgumentParser) -> None:
    servers = parser.add_argument_group("servers (without any, one with the built-in voice is started)")
    servers.add_argument(
        "--server", action="append", default=[], metavar="HOST:PORT", help="Sonorant server; may be repeated"
    )
    servers.add_argument(
        "--server-arguments", metavar="ARGS", help="start a server with these settings, given as one string"
    )
    servers.add_argument(
        "--rpc", choices=("speak", "synthesize-stream"), default="speak", help="RPC to call; default: %(default)s"
    )
    servers.add_argument(
        "--openai",
        action="append",
        default=[],
        metavar="URL",
        help="server with POST URL/audio/speech, or see --openai-by",
    )
    servers.add_argument(
        "--openai-by",
        choices=OPENAI_BY,
        default="bytes",
        help="events: server-sent events; websocket: URL/audio/speech/stream as Sonorant's gateway has it; cartesia: "
        "the WebSocket /tts/websocket of that host; default: %(default)s",
    )
    servers.add_argument("--openai-model", default="", metavar="NAME", help="name of the model on servers of --openai")
    servers.add_argument(
        "--openai-body", type=_json_object, default={}, metavar="JSON", help="more fields for requests to --openai"
    )
    servers.add_argument(
        "--keys", type=Path, metavar="FILE", help="API keys, one in a line: callers share them, in turns"
    )
    servers.add_argument("--tls", action="store_true", help="call Sonorant servers with TLS")
    servers.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="with TLS: PEM file of the authority that the server's is signed by"
    )


def _add_loads(parser: argparse.ArgumentParser) -> None:
    loads = parser.add_argument_group("loads (default: --closed 1 4)")
    loads.add_argument("--closed", type=positive_int, nargs="+", default=[], metavar="N")
    loads.add_argument("--open", type=positive, nargs="+", default=[], metavar="R")
    loads.add_argument("--paced", type=positive_int, nargs="+", default=[], metavar="N")
    loads.add_argument("--seconds", type=positive, default=20.0, metavar="S", help="measured time; default: 20")
    loads.add_argument(
        "--paced-seconds", type=positive, metavar="S", help="the same for paced loads; default: --seconds"
    )
    loads.add_argument("--warm-up-s", type=positive, default=3.0, metavar="S", help="time before that; default: 3")
    loads.add_argument(
        "--repeats", type=positive_int, default=1, metavar="N", help="run everything N times, servers taking turns"
    )
    loads.add_argument(
        "--timeout-s", type=positive, default=120.0, metavar="S", help="give up an utterance after this; default: 120"
    )


def _add_speech(parser: argparse.ArgumentParser) -> None:
    speech = parser.add_argument_group("speech")
    speech.add_argument("--frames", type=positive_int, default=0, metavar="N", help="exact length of each utterance")
    speech.add_argument(
        "--text-language",
        choices=(*texts.LANGUAGES, "any"),
        help="language of the texts; default: one that the server speaks",
    )
    speech.add_argument("--text-length", choices=(*texts.LENGTHS, "any"), default="medium", help="default: medium")
    speech.add_argument(
        "--words-per-s", type=positive, default=0.0, metavar="X", help="send each text word by word, at this speed"
    )
    speech.add_argument("--voice", default="", metavar="NAME", help="of a preset, for --task preset")
    speech.add_argument(
        "--task", choices=TASKS, default="preset", help="clone: from a recording in each request; default: %(default)s"
    )
    speech.add_argument(
        "--recordings",
        type=number("at least 0", lambda value: value >= 0, int),
        default=0,
        metavar="N",
        help="recordings in rotation; default: each is sent once",
    )
    speech.add_argument(
        "--recordings-dir", type=Path, metavar="DIR", help="recordings to send; default: they are made, 3 to 15 s long"
    )
    speech.add_argument("--recording-s", type=positive, default=0.0, metavar="S", help="length of those that are made")
    speech.add_argument("--design", default="A calm, warm voice.", metavar="TEXT", help="voice of --task design")
    speech.add_argument(
        "--max-lead-ms", type=int, metavar="N", help="see `sonorant say --help`; default: 0, for paced loads 2000"
    )
    speech.add_argument(
        "--max-wait-ms", type=int, default=0, metavar="N", help="if the server is full, wait so long for a place"
    )
    speech.add_argument("--batch", action="store_true", help="speak with the priority for what nobody listens to")
    speech.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of texts, arrivals and sampling; +1 in each repeat"
    )


def _add_client(parser: argparse.ArgumentParser) -> None:
    client = parser.add_argument_group("client")
    client.add_argument(
        "--processes",
        type=positive_int,
        metavar="N",
        help="client processes; default: as the load needs, up to half of the cores",
    )
    client.add_argument(
        "--connections",
        type=positive_int,
        default=1,
        metavar="N",
        help="connections of each client process, for a server of several processes; default: 1",
    )
    client.add_argument(
        "--max-client-lag-ms",
        type=positive,
        default=10.0,
        metavar="X",
        help="mark a row as invalid if the client was later than this (p99); default: 10",
    )
    client.add_argument(
        "--max-difference",
        type=positive,
        default=0.03,
        metavar="X",
        help="call rows not comparable if their mean audio differs by a larger share; default: 0.03",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("output (besides the table)")
    output.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    output.add_argument("--plot", type=Path, metavar="FILE", help="draw it; the name's ending gives the format")
    output.add_argument(
        "--compare", type=Path, nargs="+", metavar="FILE", help="do not measure: put files of --json into one table"
    )


def check(args: argparse.Namespace) -> None:
    """Raise ValueError for arguments that exclude each other, or if the results could not be written in the end."""
    for path in (args.json, args.plot):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"{path.parent} is not a folder, {path.name} cannot be written there")
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib: pip install 'sonorant[bench]'")
    for path in (args.keys, args.tls_ca):
        if path is not None and not path.is_file():
            raise ValueError(f"{path} is not a file")
    if args.keys and not _keys_of(args):
        raise ValueError(f"{args.keys} has no keys; put one in each line")
    if args.openai and args.paced and args.openai_by == "cartesia":
        raise ValueError("--paced needs a pace, which --openai-by cartesia does not have")
    if args.openai_by == "cartesia" and args.task != "preset":
        raise ValueError("--openai-by cartesia takes a preset voice only; leave --task out")
    if args.paced and args.max_lead_ms == 0:
        raise ValueError("--paced needs a pace: give --max-lead-ms of more than 0")
    if args.openai and (args.max_wait_ms or args.batch):
        raise ValueError("--max-wait-ms and --batch are not for --openai, which has no such fields")
    if args.task != "clone" and (args.recordings or args.recordings_dir or args.recording_s):
        raise ValueError("--recordings, --recordings-dir and --recording-s are for --task clone")
    if args.recordings_dir and args.recording_s:
        raise ValueError("--recording-s is for recordings that are made, so not for --recordings-dir")
    if args.words_per_s and (args.paced or args.openai or args.rpc != "speak"):
        raise ValueError("--words-per-s is for closed and open loads by Speak; leave out --paced, --openai and --rpc")


def loads_of(args: argparse.Namespace) -> list[Load]:
    closed = args.closed if args.closed or args.open or args.paced else (1, 4)
    paced_seconds = args.paced_seconds or args.seconds
    return [
        *(Load("closed", amount, args.seconds, args.warm_up_s) for amount in closed),
        *(Load("open", amount, args.seconds, args.warm_up_s) for amount in args.open),
        *(Load("paced", n, paced_seconds, max(args.warm_up_s, n / LISTENERS_PER_S)) for n in args.paced),
    ]


def processes_of(args: argparse.Namespace, load: Load) -> int:
    """How many client processes share the load."""
    wanted = args.processes or num_processes(load)
    return int(wanted if load.kind == "open" else min(wanted, load.amount))


def targets_of(args: argparse.Namespace) -> list[Target]:
    """The servers given by address, which run already."""
    extra_body, keys, by = tuple(args.openai_body.items()), _keys_of(args), OPENAI_BY[args.openai_by]
    return [
        *(Target(args.rpc, address, "", (), args.connections, keys, args.tls, args.tls_ca) for address in args.server),
        *(Target(by, url, args.openai_model, extra_body, keys=keys, ca=args.tls_ca) for url in args.openai),
    ]


def _keys_of(args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(args.keys.read_text(encoding="ascii").split()) if args.keys else ()


def speech_of(args: argparse.Namespace, load: Load, languages: Sequence[str], repeat: int) -> SpokenLoad:
    """The speech of a load. `languages`: those of the server; empty = unknown. Raises ValueError if the server does not
    speak the language of the texts."""
    language = args.text_language or texts.default_language(languages)
    if languages and language not in (*languages, "mixed", "any"):
        raise ValueError(f"the server does not speak {language}; it speaks {', '.join(languages)}")
    default_lead_ms = LISTENER_LEAD_MS if load.kind == "paced" else 0
    return SpokenLoad(
        texts=texts.texts(language, args.text_length, args.seed + repeat),
        seed=args.seed + repeat,
        voices=_voices_of(args, load, repeat),
        language=language if language in languages else "",
        num_frames=args.frames,
        max_lead_ms=default_lead_ms if args.max_lead_ms is None else args.max_lead_ms,
        words_per_s=args.words_per_s,
        max_wait_ms=args.max_wait_ms,
        batch=args.batch,
    )


def _voices_of(args: argparse.Namespace, load: Load, repeat: int) -> Voices:
    return Voices(
        args.task,
        name=args.voice if args.task == "preset" else "",
        design=args.design if args.task == "design" else "",
        num_recordings=args.recordings,
        recording_s=args.recording_s,
        files=voices_in(args.recordings_dir) if args.recordings_dir else (),
        salt=hash((_RUN, str(load), repeat)),
    )


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text} is not a JSON object")
    return value
