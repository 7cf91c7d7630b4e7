"""Random scripts of legal and illegal messages over many sessions at once: what holds whatever is sent, and when."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
import numpy as np
import pytest

from service.text import is_speakable
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from tests.service.fake_engine import FRAME_SAMPLES, FRAMES_PER_CHAR, FakeEngine, frame_samples
from tests.service.harness import Served, Transcript, cancel, end, eventually, flush, say, served

NUM_SESSIONS = 200
NUM_CHANNELS = 4
IDS = ("a", "b", "c", "d")
PIECES = ("Hello ", "wor", "ld. ", "He said. ", "3.5 ", "…", "", " ", "It is so. And then ", "你好。", "\n")
SEED = 7
COMPLETED = synthesis_pb2.FINISH_REASON_COMPLETED
FAILED = synthesis_pb2.FINISH_REASON_FAILED


@dataclass
class Plan:
    """A script, and what it must lead to."""

    requests: list[speak_pb2.SpeakRequest] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    text: dict[str, str] = field(default_factory=dict)  # as far as it must be taken
    ended: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)  # or over before
    failed: set[str] = field(default_factory=set)
    is_fatal: bool = False


def draw(rng: random.Random) -> Plan:
    plan = Plan()
    mode = rng.choice((0, 1, 2, 3))
    is_paced = rng.random() < 0.2
    config = speak_pb2.SpeakConfig(
        max_lead_ms=400 if is_paced else 0,
        timestamps=rng.choice((0, 1)),
        text_policy=speak_pb2.TextPolicy(mode=mode),
        synthesis=synthesis_pb2.SynthesisConfig(sampling={"seed": SEED}),
    )
    if mode != speak_pb2.COMMIT_MODE_MANUAL and rng.random() < 0.3:
        config.text_policy.max_buffer_delay_ms = 20
    if rng.random() < 0.03:
        plan.is_fatal = True
    else:
        plan.requests.append(speak_pb2.SpeakRequest(config=config))
    for _ in range(rng.randint(3, 25)):
        name = rng.choice(IDS)
        kind = rng.random()
        if kind < 0.6:
            piece = rng.choice(PIECES)
            plan.requests.append(say(piece, name))
            if name not in plan.text:
                plan.opened.append(name)
                plan.text[name] = ""
            if name not in plan.ended | plan.cancelled | plan.failed:
                plan.text[name] += piece
        elif kind < 0.7:
            plan.requests.append(end(name))
            if name in plan.text:
                plan.ended.add(name)
        elif kind < 0.8:
            plan.requests.append(flush(rng.randint(1, 9), name))
        elif kind < 0.86:
            plan.requests.append(cancel(name, **rng.choice(({}, {"played_ms": 200}))))
            if name in plan.text:
                plan.cancelled.add(name)
        elif kind < 0.87:
            plan.requests.append(cancel("*"))
            plan.cancelled |= set(plan.text)
        elif kind < 0.9:
            plan.requests.append(say("bad\0", name))
            if name not in plan.text:
                plan.opened.append(name)
                plan.text[name] = ""
            if name not in plan.ended | plan.cancelled:
                plan.failed.add(name)
        elif kind < 0.97:
            report = {"played_ms": rng.randint(0, 3000)}
            plan.requests.append(speak_pb2.SpeakRequest(playback=report, utterance_id=rng.choice((name, ""))))
        elif kind < 0.98:
            plan.requests.append(speak_pb2.SpeakRequest(utterance_id=name))
            plan.is_fatal = True
        else:
            plan.requests.append(speak_pb2.SpeakRequest(config=config))
    if is_paced:  # to be heard to the end would take too long
        plan.requests.append(cancel("*"))
        plan.cancelled |= set(plan.text)
    return plan


async def run(server: Served, channel: grpc.aio.Channel, plan: Plan, rng: random.Random) -> Transcript:
    call, transcript = type(server.stub)(channel).Speak(), Transcript()

    async def write() -> None:
        try:
            for request in plan.requests:
                await call.write(request)
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.random() * 0.03)
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            assert plan.is_fatal

    writing = asyncio.create_task(write())
    try:
        while (response := await call.read()) is not grpc.aio.EOF:
            transcript.add(response)
    except grpc.aio.AioRpcError:
        assert plan.is_fatal
    await writing
    code, details = await call.code(), await call.details()
    if not plan.is_fatal:
        assert code == grpc.StatusCode.OK, details
    elif details != "Internal error from Core":  # what a client makes of a call that ends while it writes
        assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION), details
    return transcript


def check(plan: Plan, transcript: Transcript) -> None:
    assert sorted(transcript.done) == sorted(plan.opened), "one done for each utterance"
    started = [name for name, kind in transcript.kinds if kind == "started"]
    assert started == [name for name in plan.opened if name in started], "spoken in the order of creation"
    for name, done in transcript.done.items():
        text, pcm, stats = plan.text[name], transcript.pcm.get(name, b""), done.stats
        if name in plan.failed - plan.cancelled:
            assert done.reason == FAILED
        elif name not in plan.failed | plan.cancelled:
            assert done.reason == COMPLETED
        assert stats.sent_ms == len(pcm) // 48
        assert 0 <= stats.spoken_chars <= stats.input_chars
        assert [text[mark.text_start : mark.text_end] for mark in transcript.marks.get(name, [])] == [
            mark.text for mark in transcript.marks.get(name, [])
        ]
        if done.reason == COMPLETED:
            assert stats.input_chars == stats.spoken_chars == len(text)
        tail = unspoken(text, pcm)
        assert tail is not None, "what was said is not what was written"
        assert done.reason != COMPLETED or not is_speakable(tail)


def unspoken(text: str, pcm: bytes) -> str | None:
    """What is left of the text after its audio; None if this is not its audio, segment by segment."""
    states = {(0, 0)}  # how far the text goes, frames of the segment
    for tone in np.frombuffer(pcm, "<i2")[::FRAME_SAMPLES].tolist():
        states = {
            (start + ((frame + 1) % FRAMES_PER_CHAR == 0), frame + 1)
            for position, num_frames in states
            for start, frame in candidates(text, position, num_frames)
            if frame_samples(text[start], frame, SEED)[0] == tone
        }
    return text[max(position for position, _ in states) :] if states else None


def candidates(text: str, position: int, num_frames: int) -> Iterator[tuple[int, int]]:
    """Where the next frame can come from: the segment goes on, or one begins, perhaps after some without a word."""
    if position < len(text):
        yield position, num_frames
    if num_frames % FRAMES_PER_CHAR == 0:
        for start in range(position, len(text)):
            if is_speakable(text[position:start]):
                return
            yield start, 0


@pytest.mark.parametrize("seed", (1, 2))
async def test_any_script_leaves_one_done_per_utterance_in_order_and_nothing_behind(seed: int) -> None:
    engine = FakeEngine(max_streams=2 * NUM_SESSIONS)
    rng = random.Random(seed)
    plans = [draw(rng) for _ in range(NUM_SESSIONS)]
    async with served(engine, max_sessions=NUM_SESSIONS) as server:
        channels = [grpc.aio.insecure_channel(server.address, (("n", number),)) for number in range(NUM_CHANNELS)]
        transcripts = await asyncio.gather(
            *(run(server, channels[index % NUM_CHANNELS], plan, rng) for index, plan in enumerate(plans))
        )
        for plan, transcript in zip(plans, transcripts, strict=True):
            if not plan.is_fatal:
                check(plan, transcript)
        await eventually(lambda: engine.num_streams, 0)
        assert (await server.stub.GetCapabilities(GetCapabilitiesRequest())).active_sessions == 0
        for channel in channels:
            await channel.close()
