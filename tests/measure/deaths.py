"""What listeners notice when workers end: `python -m tests.measure.deaths [--rounds 10] [--standby]`.

Eight sessions on the CPU, each taking its audio at the pace at which it is played, 2 s ahead at most. In each round the
talker, Code2Wav or both are killed, or the talker is stopped (SIGSTOP) until it is found hanging. Told are utterances
lost, the largest difference of a sample from the undisturbed run, and the longest time for which a listener had nothing
to play.
"""

import argparse
import asyncio
import dataclasses
import os
import random
import signal
import time

import numpy as np

from sonorant.engine import (
    BUILTIN_VOICE_DIR,
    EngineConfig,
    EnginePool,
    FinishReason,
    PcmChunk,
    SynthesisParams,
    start_here,
)
from sonorant.engine.types import Int16Array
from sonorant.engine.workers import worker_pair

TEXTS = ("The quick brown fox jumps over the lazy dog.", "One, two, three, and four of them went home.")
NUM_SESSIONS = 8
LEAD_S = 2.0
FAULTS: dict[str, tuple[tuple[int, ...], int]] = {
    "none": ((), 0),  # what the beginning of eight at once costs
    "kill talker": ((0,), signal.SIGKILL),
    "kill code2wav": ((1,), signal.SIGKILL),
    "kill both": ((0, 1), signal.SIGKILL),
    "stop talker": ((0,), signal.SIGSTOP),
}


@dataclasses.dataclass
class Told:
    samples: Int16Array
    reason: FinishReason
    gap_s: float  # without anything to play


async def session(engines: EnginePool, n: int, num_frames: int, paced: bool) -> Told:
    info = engines.info
    sampling = dataclasses.replace(
        info.default_sampling,
        do_sample=n % 2 == 1,
        subtalker_do_sample=n % 2 == 1,
        seed=n,
        max_frames=num_frames,
        ignore_eos=True,
    )
    params = SynthesisParams(sampling, speaker=info.speakers[0], non_streaming_mode=n % 4 >= 2)
    frame_s = 1 / info.frame_rate_hz
    lead_frames = int(LEAD_S / frame_s)
    chunks, played_until_s, gap_s = [], 0.0, 0.0
    async with engines.open(params, credit_frames=lead_frames if paced else None) as stream:
        stream.push_text(TEXTS[n % 2])
        stream.end_text()
        while isinstance(event := await stream.next_event(), PcmChunk):
            now_s = time.monotonic()
            if chunks and paced:
                gap_s = max(gap_s, now_s - played_until_s)
            played_until_s = max(now_s, played_until_s) + event.num_frames * frame_s
            chunks.append(event.samples)
            if paced:  # grant what will have been played by then
                wait_s = max(0.0, played_until_s - LEAD_S - now_s)
                asyncio.get_running_loop().call_later(wait_s, stream.grant, event.num_frames)
            else:
                stream.grant(event.num_frames)
    return Told(np.concatenate(chunks), event.reason, gap_s)


async def run(args: argparse.Namespace) -> None:
    config = EngineConfig.of(
        BUILTIN_VOICE_DIR, talker_device="cpu", num_slots=8, max_queued_streams=8, cpu_threads=1, hang_timeout_s=6
    )
    configs = [config, *[dataclasses.replace(config, is_standby=True)] * args.standby]
    worker_pair.HEALTHY_AFTER_S = 0.0  # who kills so often would have it given up
    engines = await start_here(configs)
    rng = random.Random(0)
    try:
        while engines.state != "ready":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        whole = await asyncio.gather(*(session(engines, n, args.frames, paced=False) for n in range(NUM_SESSIONS)))
        for fault, (workers, number) in FAULTS.items():
            lost, worst, gaps = 0, 0, []
            for _ in range(args.rounds):
                tasks = [asyncio.create_task(session(engines, n, args.frames, paced=True)) for n in range(NUM_SESSIONS)]
                # While the workers still make frames for all of them: they are up to LEAD_S and a chunk ahead.
                await asyncio.sleep(rng.uniform(0.5, args.frames / engines.info.frame_rate_hz - LEAD_S - 1.5))
                serving = next(p for p in engines._pairs if p.num_streams == NUM_SESSIONS)
                running = engines.owner._pairs[serving.number].workers
                assert running is not None
                for worker in workers:
                    os.kill(running.children[worker].pid, number)
                for told, expected in zip(await asyncio.gather(*tasks), whole, strict=True):
                    num_heard = len(told.samples)
                    lost += told.reason is not expected.reason or num_heard != len(expected.samples)
                    worst = max(worst, int(np.abs(told.samples.astype(int) - expected.samples[:num_heard]).max()))
                    gaps.append(max(0.0, told.gap_s))
                while any(pair.state != "ready" for pair in engines.pairs()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            p50, p95 = np.percentile(gaps, (50, 95))
            print(
                f"{fault:14} rounds {args.rounds}: {lost} of {len(gaps)} utterances lost, "
                f"largest difference {worst} LSB, nothing to play for {p50:.2f} s (p50), {p95:.2f} s (p95), "
                f"{max(gaps):.2f} s (max)",
                flush=True,
            )
    finally:
        await engines.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.deaths", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--frames", type=int, default=120, help="of each utterance, 80 ms each")
    parser.add_argument("--standby", action="store_true", help="with a pair that stands by")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
