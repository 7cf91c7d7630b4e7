"""Whether word times are the same on two devices, for the same voices: `python -m tests.measure.device_marks save FILE`
on one machine, then `... compare FILE --device cuda` on the other.

Recordings are encoded once, by `save`, and kept in the file as exported voices, so that both machines speak with the
same codes and embeddings. Held-out sentences are spoken whole in both layouts, in float32. Told are utterances with
other codes, and of those with the same codes, utterances and words with other marks.
"""

import argparse
import asyncio
import pickle
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

from sonorant.client import SpeechClient, synthesis_config
from sonorant.tts.v1.synthesis_pb2 import TimestampMode
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from sonorant.tts.v1.text_to_speech_service_pb2_grpc import TextToSpeechServiceStub
from tests.e2e.server_process import ServerProcess
from tests.measure.mark_error import REFERENCE, sentences

PRESETS = ("linden", "wren")
# Stored voices: the preset that is recorded, and whether its transcript is given, too.
CLONES = {"clone-of-linden": ("linden", True), "clone-of-wren": ("wren", True), "sound-of-linden": ("linden", False)}


@dataclass(frozen=True, slots=True)
class Spoken:
    codes: bytes
    marks: tuple[tuple[int, int, str], ...]  # starts and ends in ms


Key = tuple[str, bool, str]  # voice, whole text, sentence


async def created(client: SpeechClient) -> dict[str, bytes]:
    """The clones, as exported."""
    exported = {}
    for name, (preset, has_transcript) in CLONES.items():
        recording = (await client.synthesize(REFERENCE, synthesis_config(voice=preset, seed=3, encoding="wav"))).audio
        transcript = REFERENCE if has_transcript else ""
        await client.create_voice(name, reference=recording, transcript=transcript, consent="a synthetic voice")
        exported[name] = await client.export_voice(name)
    return exported


async def speak_all(address: str, num_sentences: int) -> dict[Key, Spoken]:
    spoken: dict[Key, Spoken] = {}
    async with grpc.aio.insecure_channel(address) as channel:
        stub = TextToSpeechServiceStub(channel)
        for voice in (*PRESETS, *CLONES):
            for is_whole in (False, True):
                for seed, text in enumerate(sentences(num_sentences)):
                    config = synthesis_config(voice=voice, seed=seed, non_streaming_mode=is_whole, encoding="codes")
                    request = SynthesizeRequest(config=config, text=text, timestamps=TimestampMode.TIMESTAMP_MODE_WORD)
                    response = await stub.Synthesize(request)
                    marks = tuple((mark.start_ms, mark.end_ms, mark.text) for mark in response.marks)
                    spoken[voice, is_whole, text] = Spoken(response.audio, marks)
    return spoken


def report(here: Mapping[Key, Spoken], there: Mapping[Key, Spoken]) -> list[str]:
    lines = []
    for voice in (*PRESETS, *CLONES):
        pairs = [(here[key], there[key]) for key in here if key[0] == voice]
        same = [(a, b) for a, b in pairs if a.codes == b.codes]
        other = [(a, b) for a, b in same if a.marks != b.marks]
        words = [(x, y) for a, b in same for x, y in zip(a.marks, b.marks, strict=True)]
        differences = [abs(x[0] - y[0]) for x, y in words if x != y]
        lines.append(
            f"{voice:14} {len(pairs)} utterances, {len(pairs) - len(same)} with other codes, {len(other)} with other "
            f"marks: {len(differences)} of {len(words)} words, by {max(differences, default=0)} ms at most"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.device_marks", description=__doc__)
    parser.add_argument("what", choices=("save", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sentences", type=int, default=40)
    args = parser.parse_args()
    asyncio.run(run(args))


async def run(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        models = ("--model", "builtin_voice", "--model", "builtin_base", "--num-slots", "4", "--dtype", "float32")
        devices = ("--talker-device", args.device, "--code2wav-device", args.device, "--voices-dir", f"{folder}/voices")
        with ServerProcess(Path(folder) / "log", *models, *devices) as server:
            async with SpeechClient(server.address) as client:
                if args.what == "save":
                    voices = await created(client)
                    args.file.write_bytes(pickle.dumps((voices, await speak_all(server.address, args.sentences))))
                    return
                voices, there = pickle.loads(args.file.read_bytes())
                for exported in voices.values():
                    await client.import_voice(exported)
                print(*report(await speak_all(server.address, args.sentences), there), sep="\n")


if __name__ == "__main__":
    main()
