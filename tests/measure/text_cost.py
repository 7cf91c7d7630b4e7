"""What reading a text costs before its first audio: `python -m tests.measure.text_cost [--rounds 100]`.

Two servers of the same voice, one of which is given text as it is written (`text_characters`, `text_in_words`), say the
same sentence in turns: one without the fold, one with it, one as markdown. Told is the time from
opening the call to the first audio.
"""

import argparse
import asyncio
import json
import random
import shutil
import tempfile
import time
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import numpy as np

from sonorant.client import SpeechClient, synthesis_config
from sonorant.client.local_server import local_server
from sonorant.engine import BUILTIN_VOICE_DIR

TEXT = "Let me look that up for you, it will only take a moment."
WARM_UP = 5
REST_S = 0.1  # so that what is left of the call before disturbs nothing


async def first_audio_ms(client: SpeechClient, text_format: str) -> float:
    begin_s = time.monotonic()
    async with aclosing(client.stream(TEXT, synthesis_config(text_format=text_format))) as payloads:
        async for payload in payloads:
            if getattr(payload, "data", b""):
                return (time.monotonic() - begin_s) * 1000
    raise AssertionError("there was no audio")


async def measure(rounds: int, starts: int) -> None:
    took_ms: dict[str, list[float]] = {"without the fold": [], "with it": [], "markdown": []}
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / "folded", Path(folder) / "unfolded"]  # checkpoints that differ in nothing else
        for each in folders:
            shutil.copytree(BUILTIN_VOICE_DIR, each)
        settings = folders[1] / "generation_config.json"
        values = json.loads(settings.read_text(encoding="utf-8"))
        del values["text_characters"], values["text_in_words"]
        settings.write_text(json.dumps(values), encoding="utf-8")
        for number in range(starts):
            async with AsyncExitStack() as stack:
                clients = dict[Path, SpeechClient]()
                for each in folders[:: 1 if number % 2 else -1]:  # which server is the first one makes a difference
                    target = await stack.enter_async_context(local_server(["--model", str(each)]))
                    clients[each] = await stack.enter_async_context(SpeechClient(target))
                folding, plain = (clients[each] for each in folders)
                ways = dict(zip(took_ms, ((plain, "plain"), (folding, "plain"), (folding, "markdown")), strict=True))
                await _in_turns(ways, rounds, random.Random(number), took_ms)
    _tell(took_ms)


async def _in_turns(
    ways: dict[str, tuple[SpeechClient, str]], rounds: int, chance: random.Random, took_ms: dict[str, list[float]]
) -> None:
    for number in range(WARM_UP + rounds):
        for name in chance.sample(list(ways), len(ways)):
            await asyncio.sleep(REST_S)
            ms = await first_audio_ms(*ways[name])
            if number >= WARM_UP:
                took_ms[name].append(ms)


def _tell(took_ms: dict[str, list[float]]) -> None:
    for name, all_ms in took_ms.items():
        p50, p95 = np.percentile(all_ms, (50, 95))
        print(f"{name}: first audio after {p50:.1f} ms (p95: {p95:.1f}), {len(all_ms)} times")
    chance = np.random.default_rng(1)
    for name, before in (("with it", "without the fold"), ("markdown", "with it"), ("markdown", "without the fold")):
        after_ms, before_ms = np.array(took_ms[name]), np.array(took_ms[before])
        drawn = chance.integers(0, len(after_ms), (1000, len(after_ms)))
        more = np.median(after_ms[drawn], 1) / np.median(before_ms[drawn], 1) - 1
        low, high = np.quantile(more, (0.05, 0.95))
        p50 = np.median(after_ms) / np.median(before_ms) - 1
        print(f"{name} against {before}: {p50:+.1%} (90 %: {low:+.1%} to {high:+.1%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="of each start")
    parser.add_argument("--starts", type=int, default=4)
    args = parser.parse_args()
    asyncio.run(measure(args.rounds, args.starts))


if __name__ == "__main__":
    main()
