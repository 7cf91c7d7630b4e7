"""What one call waits for behind a flood of another host: `python -m tests.measure.floods KIND [--rounds 4]`.

Four connections send a flood in one go. Then calls of somebody else are made, and the processor time of the event
loop's thread is counted until each is answered: so the result does not depend on what else the machine does. It
includes the caller, who has the same thread, and 2 ms of a call without a flood. There is no model behind the server.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack

import uvloop

from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from tests.fuzz.http2 import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SPEECH, frame, headers
from tests.service.fake_engine import FakeEngine
from tests.service.flooded import Flood
from tests.service.harness import Served, say, served
from tests.service.raw_http2 import framed

NUM_CONNECTIONS, NUM_CALLS = 4, 10  # calls of somebody else
PAUSE_S = 0.5
CHINESE = "你好。" * 1300
SENTENCES = speak_pb2.SpeakRequest(config={"text_policy": {"mode": "COMMIT_MODE_SENTENCE"}})


def call(stream: int) -> bytes:
    begun = frame(HEADERS, END_HEADERS, stream, headers("me", f"{SPEECH}GetCapabilities"))
    return begun + frame(DATA, END_STREAM, stream, framed(GetCapabilitiesRequest()))


def session(*requests: speak_pb2.SpeakRequest) -> Callable[[int], bytes]:
    def begin(stream: int) -> bytes:
        begun = frame(HEADERS, END_HEADERS, stream, headers("me", f"{SPEECH}Speak"))
        return begun + b"".join(frame(DATA, 0, stream, framed(request)) for request in requests)

    return begin


def reset(stream: int) -> bytes:
    return frame(RST_STREAM, 0, stream, (8).to_bytes(4, "big"))


# Of each connection: how many calls, and their bytes.
KINDS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "calls": (500, call),
    "messages": (80, session(speak_pb2.SpeakRequest(config={}), *[say("a ") for _ in range(100)])),
    "texts": (10, session(SENTENCES, say(CHINESE))),
    "resets": (50, session(SENTENCES, say(CHINESE))),  # each is cancelled as soon as it has begun
}


async def one_round(server: Served, kind: str) -> tuple[float, float, float]:
    """Milliseconds of the loop's thread: until the first call of somebody else is answered, for the slowest of ten, and
    for all of it."""
    num_calls, begin = KINDS[kind]
    streams = [2 * number + 1 for number in range(num_calls)]
    begun_s, waits_s = time.thread_time(), []
    with ExitStack() as connections:
        sent = b"".join(map(begin, streams))
        floods = [Flood(connections, server, "127.0.0.2", sent) for _ in range(NUM_CONNECTIONS)]
        for _ in range(NUM_CALLS):
            start_s = time.thread_time()
            await server.stub.GetCapabilities(GetCapabilitiesRequest())
            waits_s.append(time.thread_time() - start_s)
        if kind == "resets":
            for flood in floods:
                flood.send(b"".join(map(reset, streams)))
        await asyncio.sleep(PAUSE_S)
    return waits_s[0] * 1000, max(waits_s) * 1000, (time.thread_time() - begun_s) * 1000


async def run(kind: str, rounds: int) -> None:
    async with served(FakeEngine(), max_sessions=4000) as server:
        await server.stub.GetCapabilities(GetCapabilitiesRequest())  # the connection is known from now on
        for _ in range(rounds):
            first, longest, total = await one_round(server, kind)
            print(f"{kind}: first call {first:.0f} ms, slowest of ten {longest:.0f}; all together {total:.0f}")
            await asyncio.sleep(PAUSE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--rounds", type=int, default=4, help="on one server, which remembers resets")
    args = parser.parse_args()
    uvloop.run(run(args.kind, args.rounds))


if __name__ == "__main__":
    main()
