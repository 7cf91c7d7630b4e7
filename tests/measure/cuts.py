"""A listener whose connection is cut every 3 s for a minute: `python -m tests.measure.cuts`.

One session on a server of its own with the built-in voice, through a proxy that cuts all connections. Told are how
often it was resumed, whether every sample was heard once, the interruptions as the client counts them, and for how long
there was nothing to play.
"""

import argparse
import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from sonorant.client import AudioChunk, Resumed, SpeechClient, synthesis_config
from sonorant.client.local_server import local_server
from tests.cutting_proxy import CuttingProxy

TEXT = "Words may come one by one, and none of them is lost. Not even when a train goes into a tunnel. "
BYTES_PER_S = 48_000


@dataclass
class Heard:
    pcm: list[bytes] = field(default_factory=list)
    interruptions_s: list[float] = field(default_factory=list)
    dry_s: list[float] = field(default_factory=list)  # without anything to play, each time

    @property
    def samples(self) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
        return np.frombuffer(b"".join(self.pcm), np.int16).astype(np.int32)


async def listen(client: SpeechClient, lead_ms: int, num_utterances: int) -> Heard:
    """To so many utterances, one after another."""
    heard, played_until_s = Heard(), 0.0
    async with client.speak(synthesis_config(seed=7, voice="wren"), max_lead_ms=lead_ms) as session:
        for number in range(num_utterances):
            await session.send_text(TEXT, f"u{number}")
            await session.end(f"u{number}")
        await session.finish()
        async for event in session:
            match event.payload:
                case AudioChunk() as audio:
                    now_s = time.monotonic()
                    if heard.pcm and now_s > played_until_s:
                        heard.dry_s.append(now_s - played_until_s)
                    played_until_s = max(now_s, played_until_s) + len(audio.data) / BYTES_PER_S
                    heard.pcm.append(audio.data)
                case Resumed() as resumed:
                    heard.interruptions_s.append(resumed.gap_s)
    return heard


async def cut_again_and_again(proxy: CuttingProxy, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        proxy.cut()


async def run(args: argparse.Namespace) -> None:
    async with local_server() as address:
        async with SpeechClient(address) as client:
            one = (await listen(client, 0, 1)).samples
            num_utterances = max(1, round(args.seconds * BYTES_PER_S / 2 / len(one)))
            whole = (await listen(client, 0, num_utterances)).samples
        async with CuttingProxy(int(address.rpartition(":")[2])) as proxy:
            cutting = asyncio.create_task(cut_again_and_again(proxy, args.every_s))
            async with SpeechClient(f"127.0.0.1:{proxy.port}") as client:
                heard = await listen(client, args.lead_ms, num_utterances)
            cutting.cancel()
            with suppress(asyncio.CancelledError):
                await cutting
    samples = heard.samples
    differs = int(np.abs(samples - whole).max()) if len(samples) == len(whole) else None
    p50, p95 = np.percentile(heard.interruptions_s, (50, 95)) * 1000
    print(
        f"{len(whole) * 2 / BYTES_PER_S:.1f} s of audio in {num_utterances} utterances, resumed "
        f"{len(heard.interruptions_s)} times: {len(samples) - len(whole)} samples too many, largest difference "
        f"{differs} LSB; interruptions {p50:.0f} ms (p50), {p95:.0f} ms (p95), "
        f"{max(heard.interruptions_s) * 1000:.0f} ms (most); nothing to play {len(heard.dry_s)} times, for "
        f"{sum(heard.dry_s):.2f} s in all, {max(heard.dry_s, default=0.0):.2f} s at most"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.cuts", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of audio, about")
    parser.add_argument("--every-s", type=float, default=3.0)
    parser.add_argument("--lead-ms", type=int, default=2000)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
