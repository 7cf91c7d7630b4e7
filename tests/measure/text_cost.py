"""What reading a text costs before its first audio: `python -m tests.measure.text_cost [--rounds 100]`.

Two servers of the same voice, one of which folds no characters (`text_characters`), say the same sentence in turns:
one without the fold, one with it, one as markdown. Told is the time from opening the call to the first audio.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import tempfile
import time
from contextlib import aclosing
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


async def measure(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        folded, unfolded = Path(folder) / "folded", Path(folder) / "unfolded"  # servers that differ in nothing else
        shutil.copytree(BUILTIN_VOICE_DIR, folded)
        shutil.copytree(BUILTIN_VOICE_DIR, unfolded)
        settings = unfolded / "generation_config.json"
        values = json.loads(settings.read_text(encoding="utf-8"))
        del values["text_characters"]
        settings.write_text(json.dumps(values), encoding="utf-8")
        async with (
            local_server(["--model", str(folded)]) as folding,
            local_server(["--model", str(unfolded)]) as plain,
            SpeechClient(folding) as with_fold,
            SpeechClient(plain) as without_fold,
        ):
            ways = {
                "without the fold": (without_fold, "plain"),
                "with it": (with_fold, "plain"),
                "markdown": (with_fold, "markdown"),
            }
            took_ms: dict[str, list[float]] = {name: [] for name in ways}
            chance = random.Random(1)
            for number in range(WARM_UP + rounds):
                for name in chance.sample(list(ways), len(ways)):
                    await asyncio.sleep(REST_S)
                    ms = await first_audio_ms(*ways[name])
                    if number >= WARM_UP:
                        took_ms[name].append(ms)
    for name, all_ms in took_ms.items():
        p50, p95 = statistics.median(all_ms), statistics.quantiles(all_ms, n=20)[-1]
        print(f"{name}: first audio after {p50:.1f} ms (p95: {p95:.1f}), {rounds} times")
    chance = np.random.default_rng(1)
    for name, before in (("with it", "without the fold"), ("markdown", "with it"), ("markdown", "without the fold")):
        drawn = chance.integers(0, rounds, (1000, rounds))
        after_ms, before_ms = (np.median(np.array(took_ms[each])[drawn], 1) for each in (name, before))
        low, high = np.quantile(after_ms / before_ms - 1, (0.05, 0.95)) * 100
        p50 = (statistics.median(took_ms[name]) / statistics.median(took_ms[before]) - 1) * 100
        print(f"{name} against {before}: {p50:+.1f} % (90 %: {low:+.1f} to {high:+.1f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    asyncio.run(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
