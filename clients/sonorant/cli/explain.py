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
    parser.set_defaults(run=run)
    parser.add_argument("text", nargs="+", help="the text to explain")
    parser.add_argument("--json", action="store_true", help="print the whole answer as JSON")
    add_config_arguments(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the explanation; return exit status 1 if the text or the config would be refused."""
    async with SpeechClient(args.server) as client:
        answer = await client.explain(" ".join(args.text), config_of(args, args.encoding))
    if args.json:
        print(MessageToJson(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))
    else:
        print("\n".join(explanation_lines(answer)))
    for status in answer.errors:
        error = from_status(status)
        print(f"refused: {error} ({error.reason})", file=sys.stderr)
    return 1 if answer.errors else 0


def explanation_lines(answer: ExplainResponse) -> list[str]:
    """The explanation as lines for people."""
    lines = [f"model     {answer.model}"]
    if answer.HasField("audio"):
        layout = "non-streaming" if answer.non_streaming_mode else "streaming"
        lines.append(f"voice     {answer.voice_id or '(unnamed)'}, language {answer.language}, {layout} layout")
        encoding = AudioEncoding.Name(answer.audio.encoding).removeprefix("AUDIO_ENCODING_").lower()
        lines.append(
            f"audio     {encoding} at {answer.audio.sample_rate_hz} Hz "
            f"in frames of {answer.audio.frame_duration_ms} ms, "
            f"speed {answer.speed:g}, gain {answer.volume_gain_db:g} dB"
        )
        settings = {field.name: value for field, value in answer.sampling.ListFields()}
        seed = settings.pop("seed", "drawn for each utterance")
        lines.append(f"sampling  seed {seed}, " + ", ".join(f"{name} {value:.7g}" for name, value in settings.items()))
    lines += [f"warning   {warning.message} ({warning.code})" for warning in answer.warnings]
    if answer.tokens:
        lines.append(f"text      {_quoted(answer.text)}")
        lines += [
            f"  at {each.text_start}: {_quoted(each.written)} becomes {_quoted(each.given) or 'nothing'}"
            for each in answer.changes
        ]
        lines.append(f"tokens    {len(answer.tokens)}: " + " ".join(f"{t.id} {_quoted(t.text)}" for t in answer.tokens))
        lines.append(f"prompt    {len(answer.prompt)} rows of text and codec")
        lines += [f"  {number:6}  {_quoted(row.text):16} {row.codec}" for number, row in enumerate(answer.prompt)]
        lines += [f"  after frame {number}: {_quoted(text)}" for number, text in enumerate(answer.trailing)]
        seconds = answer.estimated_audio_ms / 1000
        lines.append(f"estimate  {answer.estimated_frames} codec frames, {seconds:.1f} s of audio")
    lines.append("limits    " + ", ".join(f"{each.name} {each.value} of {each.limit}" for each in answer.limits))
    return [line.rstrip() for line in lines]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
