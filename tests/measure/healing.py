"""How speech that goes wrong is mended, and whether speech that does not is left alone.

    python -m tests.measure.healing --num 1000                     # the built-in voice as it is
    python -m tests.measure.healing --num 100 --temperature 6      # ... with wild draws
    python -m tests.measure.healing --num 100 --eos-scale 0.2      # ... made to miss its end

Sentences are spoken through a real server: as a stream that is sent 2 s ahead of the listener, or with --whole as a
clip. A model that misses its end is the same checkpoint whose scores of the end token are scaled down. "Heard" is what
was sent beyond the length that the sentence has with the checkpoint as it is, half a second granted. "Touched" is what
was set back, or ended where it was over.
"""

import argparse
import asyncio
import tempfile
from collections import Counter
from pathlib import Path

import grpc

from sonorant.engine import BUILTIN_VOICE_DIR
from sonorant.tts.v1.synthesis_pb2 import FinishReason, SynthesisConfig, SynthesisStats
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest, SynthesizeStreamRequest
from tests.e2e.server_process import ServerProcess
from tests.endless_voice import write_endless_voice
from tests.measure.mark_error import sentences
from tests.service.harness import Stub

WARNED: Counter[str] = Counter()
CALLS_AT_ONCE = 8
SENTENCES = sentences(100)
GRANTED_MS = 500


async def speak_all(server: ServerProcess, args: argparse.Namespace) -> list[tuple[int, int, SynthesisStats]]:
    """(number, reason, what was told of it) of each."""
    places = asyncio.Semaphore(CALLS_AT_ONCE)

    async def one(number: int) -> tuple[int, int, SynthesisStats]:
        config = SynthesisConfig()
        config.sampling.seed = args.seed + number
        config.non_streaming_mode = bool(number // len(SENTENCES) % 2)
        if args.temperature:
            config.sampling.temperature = config.sampling.subtalker_temperature = args.temperature
        text = SENTENCES[number % len(SENTENCES)]
        async with places:
            if args.whole:
                clip = await stub.Synthesize(SynthesizeRequest(text=text, config=config))
                return number, clip.reason, clip.stats
            request = SynthesizeStreamRequest(text=text, config=config, max_lead_ms=2000)
            async for response in stub.SynthesizeStream(request):
                if response.HasField("warning"):
                    WARNED[response.warning.code] += 1
                if response.HasField("done"):
                    return number, response.done.reason, response.done.stats
        raise AssertionError("a call ends with done")

    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = Stub(channel)
        return await asyncio.gather(*(one(number) for number in range(args.num)))


async def main(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = (
            write_endless_voice(Path(folder) / "voice", args.eos_scale) if args.eos_scale != 1 else BUILTIN_VOICE_DIR
        )
        with ServerProcess(Path(folder) / "log", "--model", str(model)) as server:
            told = await speak_all(server, args)
        lengths_ms: dict[int, int] = {}
        if args.eos_scale != 1:
            with ServerProcess(Path(folder) / "log", "--model", str(BUILTIN_VOICE_DIR)) as server:
                lengths_ms = {number: stats.sent_ms for number, _, stats in await speak_all(server, args)}
    print(f"{len(told)} utterances: " + ", ".join(f"{n} {FinishReason.Name(r)}" for r, n in reasons(told).items()))
    print("warnings:", dict(WARNED))
    lost = [each for each in told if each[2].heals or each[2].missed_ends]
    num_set_back, num_ended = sum(s.heals > 0 for _, _, s in lost), sum(s.missed_ends > 0 for _, _, s in lost)
    num_well = sum(reason == 1 for _, reason, _ in lost)
    print(f"touched: {len(lost)} ({num_set_back} set back, {num_ended} ended); of these ended well: {num_well}")
    print("seeds of the touched:", *(args.seed + number for number, _, _ in lost))
    if lengths_ms:
        is_unheard = [stats.sent_ms <= lengths_ms[number] + GRANTED_MS for number, _, stats in lost]
        well = [reason == 1 and unheard for (_, reason, _), unheard in zip(lost, is_unheard, strict=True)]
        beyond = sorted(stats.sent_ms - lengths_ms[number] for number, _, stats in lost)
        print(f"ended well, and nothing of it heard: {sum(well)}; sent beyond the usual length, ms: {beyond}")


def reasons(told: list[tuple[int, int, SynthesisStats]]) -> Counter[int]:
    return Counter(reason for _, reason, _ in told)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.healing", description=__doc__)
    parser.add_argument("--num", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first; each has the next one")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the checkpoint's")
    parser.add_argument("--eos-scale", type=float, default=1.0)
    parser.add_argument("--whole", action="store_true", help="clips in place of streams")
    return parser


if __name__ == "__main__":
    asyncio.run(main(_parser().parse_args()))
