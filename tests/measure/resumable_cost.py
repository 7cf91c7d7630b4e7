"""What it costs to be resumable while nothing fails: `python -m tests.measure.resumable_cost [--rounds 4]`.

Bytes of one paced utterance with what our client asks for (`resumable`, `max_silence_ms`) and without, those of all
messages as gRPC sends them, with the 16 codebooks of the published checkpoints. Then CPU time of the service per frame,
as `tests.measure.front_end_cost` takes it, in turns.
"""

import argparse
import statistics

import grpc
import uvloop

from sonorant.tts.v1 import speak_pb2
from tests.measure.front_end_cost import measure, resuming
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAME_SAMPLES
from tests.service.harness import Stub, end, say, served

TEXT = "words " * 20
PUBLISHED_FRAME_BYTES = 22  # 16 codes of 11 bits


async def bytes_of(resumable: bool, lead_ms: int, encoding: str) -> tuple[int, int]:
    """Of all messages behind the first, and frames of audio."""
    num_bytes, num_samples, frame_bytes = 0, 0, 0
    config = {**resuming(lead_ms, resumable=resumable), "synthesis": {"audio": {"encoding": encoding}}}
    async with served(FakeEngine()) as server, grpc.aio.insecure_channel(server.address) as channel:
        call = Stub(channel).Speak()
        await call.write(speak_pb2.SpeakRequest(config=config))
        await call.read()
        await call.write(say(TEXT))
        await call.write(end())
        await call.done_writing()
        while (response := await call.read()) is not grpc.aio.EOF:
            if response.HasField("started"):
                frame_bytes = -(-response.started.codebooks * response.started.code_bits // 8)
            for told in response.audio.codes:
                told.packed = bytes(len(told.packed) // frame_bytes * PUBLISHED_FRAME_BYTES)
            num_bytes += response.ByteSize()
            num_samples += response.audio.num_samples
    return num_bytes, num_samples // FRAME_SAMPLES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.resumable_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--lead-ms", type=int, default=300)
    args = parser.parse_args()
    for encoding in ("AUDIO_ENCODING_PCM_S16LE", "AUDIO_ENCODING_OPUS"):
        without, num_frames = uvloop.run(bytes_of(False, args.lead_ms, encoding))
        resumable, _ = uvloop.run(bytes_of(True, args.lead_ms, encoding))
        print(
            f"{encoding}: {without / num_frames:.1f} bytes a frame without, {resumable / num_frames:.1f} resumable "
            f"({100 * (resumable / without - 1):+.2f} %, {num_frames} frames)",
            flush=True,
        )
    print("   cost of  streams  lead ms    count  cores used  us each  p50 late  p99 late  stall ms  collection ms")
    costs_us: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * args.rounds):
        resumable_now = number % 4 in (1, 2)  # each as often first as second
        cost_us = uvloop.run(measure("frames", args.streams, args.seconds, args.lead_ms, 0.0, resumable=resumable_now))
        costs_us[resumable_now].append(cost_us)
    plain_us, resumable_us = (statistics.median(costs_us[kind]) for kind in (False, True))
    each = [", ".join(f"{cost:.0f}" for cost in costs_us[kind]) for kind in (False, True)]
    print(
        f"CPU per frame, median of {args.rounds}: {plain_us:.0f} us without, {resumable_us:.0f} us resumable "
        f"({100 * (resumable_us / plain_us - 1):+.1f} %); each time "
        f"{each[0]} and {each[1]}"
    )


if __name__ == "__main__":
    main()
