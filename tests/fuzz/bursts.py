"""Noise for doors that stay open: as many messages as fit into one read, of every door, some half right.

The gateway closes the connection at their end, and takes no turn of the event loop for long.
"""

import json
import random
from typing import Any

from tests.fuzz.bytes import mutated
from tests.fuzz.doors import CONFIG, EVENTS, KINDS, VALUES
from tests.gateway.harness import Door
from tests.gateway.turns import BURST_BYTES, CLOSE, PING, UPGRADE, burst, frame

LONGEST_S = 0.25  # of processor time, all processes of a deployment being one here; without turns it took 0.5
PATIENCE_S = 60.0


def _stream(rng: random.Random) -> dict[str, Any]:
    return {"type": rng.choice(KINDS), "text": rng.choice((*VALUES, "a. " * 9000)), "played_ms": rng.choice(VALUES)}


def _cartesia(rng: random.Random) -> dict[str, Any]:
    told = {"context_id": rng.choice("abcdefghi"), "transcript": rng.choice(VALUES), "continue": rng.random() < 0.7}
    return {**told, rng.choice(("flush", "cancel", "language", "voice", "x")): rng.choice(VALUES)}


def _wyoming(rng: random.Random) -> dict[str, Any]:
    return {"type": rng.choice(EVENTS), "data": rng.choice((*VALUES, {"text": "a"}, {"text": "a", "voice": {}}))}


def _many(messages: list[bytes], rng: random.Random) -> tuple[bytes, bool]:
    """Some of them, again and again; and whether these are damaged, so that the last one may have no end."""
    round_ = b"".join(rng.choice(messages) for _ in range(rng.randint(1, 20)))
    many = round_ * max(1, BURST_BYTES // len(round_))
    return (mutated(many, rng), True) if rng.random() < 0.3 else (many, False)


async def send_burst(door: Door, rng: random.Random) -> int:
    made = rng.choice((_stream, _stream, _cartesia, _wyoming))
    messages = [json.dumps(made(rng)).encode() for _ in range(rng.randint(1, 5))]
    if made is _wyoming:
        many, damaged = _many([message + b"\n" for message in messages], rng)
        _, longest_s = await burst(door.wyoming_port, b"", many, b"\n\n", PATIENCE_S, hangs_up=damaged)
    else:
        path = "/v1/audio/speech/stream" if made is _stream else "/tts/websocket"
        split = {**CONFIG, "split_granularity": rng.choice(("none", "sentence", "clause"))}
        begin = UPGRADE.format(path=path).encode() + frame(json.dumps(split).encode())
        many, damaged = _many([frame(b"", PING), *(frame(message) for message in messages)], rng)
        port = int(door.url.rpartition(":")[2])
        _, longest_s = await burst(port, begin, many, frame(b"", CLOSE), PATIENCE_S, hangs_up=damaged)
    assert longest_s < LONGEST_S, f"{longest_s:.2f} s for {messages}"
    return len(messages)
