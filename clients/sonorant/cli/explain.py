"""`sonorant explain`: shows how the server would speak a text, as a page for people or as JSON."""

import argparse
import json
import sys

from google.protobuf.json_format import MessageToJson

from sonorant.cli.config_arguments import add_config_arguments, config_of
from sonorant.client.client import SpeechClient
from sonorant.client.errors import from_status
from sonorant.tts.v1.audio_pb2 import AudioEncoding
from sonorant.tts.v1.explain_pb2 import ExplainResponse

EXAMPLES = """\
examples:
  sonorant explain "Dr. Who paid $1.50."
  sonorant explain "Dr. Who paid $1.50." --no-non-streaming-mode     the layout of Speak
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", help="the text to explain")
    parser.add_argument("--json", action="store_true", help="print the whole answer as JSON")
    add_config_arguments(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the explanation; return exit status 1 if the text or the config would be refused."""
    async with SpeechClient(args.server) as client:
        told = await client.explain(args.text, config_of(args, args.encoding))
    if args.json:
        print(MessageToJson(told, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))
    else:
        print("\n".join(page(told)))
    for status in told.errors:
        error = from_status(status)
        print(f"refused: {error} ({error.reason})", file=sys.stderr)
    return 1 if told.errors else 0


def page(told: ExplainResponse) -> list[str]:
    """The explanation as lines for people."""
    lines = [f"model     {told.model}"]
    if told.HasField("audio"):
        layout = "non-streaming" if told.non_streaming_mode else "streaming"
        lines.append(f"voice     {told.voice_id or '(unnamed)'}, language {told.language}, {layout} layout")
        encoding = AudioEncoding.Name(told.audio.encoding).removeprefix("AUDIO_ENCODING_").lower()
        lines.append(
            f"audio     {encoding} at {told.audio.sample_rate_hz} Hz in frames of {told.audio.frame_duration_ms} ms, "
            f"speed {told.speed:g}, gain {told.volume_gain_db:g} dB"
        )
        settings = {field.name: value for field, value in told.sampling.ListFields()}
        seed = settings.pop("seed", "drawn for each utterance")
        lines.append(f"sampling  seed {seed}, " + ", ".join(f"{name} {value:.7g}" for name, value in settings.items()))
    lines += [f"warning   {warning.message} ({warning.code})" for warning in told.warnings]
    if told.tokens:
        lines.append(f"text      {_quoted(told.text)}")
        lines.append(f"tokens    {len(told.tokens)}: " + " ".join(f"{t.id} {_quoted(t.text)}" for t in told.tokens))
        lines.append(f"prompt    {len(told.prompt)} rows of text and codec")
        lines += [f"  {number:6}  {_quoted(row.text):16} {row.codec}" for number, row in enumerate(told.prompt)]
        lines += [f"  after frame {number}: {_quoted(text)}" for number, text in enumerate(told.trailing)]
        seconds = told.estimated_audio_ms / 1000
        lines.append(f"estimate  {told.estimated_frames} codec frames, {seconds:.1f} s of audio")
    lines.append("limits    " + ", ".join(f"{each.name} {each.value} of {each.limit}" for each in told.limits))
    return [line.rstrip() for line in lines]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
