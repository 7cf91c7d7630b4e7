"""Random scripts of messages for a Speak session, legal and illegal, and what must come of each whatever the timing."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from sonorant.service.text.checks import is_speakable
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from tests.service.fake_speech import FRAME_SAMPLES, FRAMES_PER_CHAR, frame_samples
from tests.service.harness import Transcript, cancel, end, flush, say

IDS = ("a", "b", "c", "d", "")
PIECES = ("Hello ", "wor", "ld. ", "He said. ", "3.5 ", "…", "", " ", "It is so. And then ", "你好。", "\n")
SEED = 7
COMPLETED = synthesis_pb2.FINISH_REASON_COMPLETED
CANCELLED = synthesis_pb2.FINISH_REASON_CANCELLED
FAILED = synthesis_pb2.FINISH_REASON_FAILED
WRONG = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
STATUS_LOST = "Internal error from Core"  # what a client makes of a call that ends while it writes


@dataclass
class Plan:
    """A script, and what it must lead to."""

    requests: list[speak_pb2.SpeakRequest] = field(default_factory=list)
    is_fatal: bool = False  # ends the session with a status
    is_abandoned: bool = False  # the client cancels the call instead of half-closing it
    opened: list[str] = field(default_factory=list)
    text: dict[str, str] = field(default_factory=dict)  # as far as it must be taken
    flushes: dict[str, list[int]] = field(default_factory=dict)  # as far as they must be answered
    ended: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)  # or over before
    failed: set[str] = field(default_factory=set)
    _current: str = ""
    _num_minted: int = 0

    def named(self, name: str) -> str:
        """What a message for `name` is about."""
        return name or self._current

    def push(self, name: str, piece: str) -> None:
        self.requests.append(say(piece, name))
        name = self.named(name)
        if not name:
            self._num_minted += 1
            name = f"u{self._num_minted}"
        if name not in self.text:
            self.opened.append(name)
            self.text[name], self.flushes[name], self._current = "", [], name
        if name in self.ended | self.cancelled | self.failed:
            return
        if "\0" in piece:
            self.failed.add(name)
        else:
            self.text[name] += piece

    def flush(self, name: str, flush_id: int) -> None:
        self.requests.append(flush(flush_id, name))
        name = self.named(name)
        if name in self.text and name not in self.ended | self.cancelled | self.failed:
            self.flushes[name].append(flush_id)

    def end(self, name: str) -> None:
        self.requests.append(end(name))
        self._over(self.named(name), self.ended)

    def cancel(self, name: str, **fields: int) -> None:
        self.requests.append(cancel(name, **fields))
        if name == "*":
            self.cancelled |= set(self.text)
            self._current = ""
        else:
            self._over(self.named(name), self.cancelled)

    def _over(self, name: str, how: set[str]) -> None:
        if name in self.text:
            how.add(name)
        if name == self._current:
            self._current = ""


def draw(rng: random.Random) -> Plan:
    plan = Plan(is_abandoned=rng.random() < 0.1)
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
            plan.push(name, rng.choice(PIECES))
        elif kind < 0.7:
            plan.end(name)
        elif kind < 0.8:
            plan.flush(name, rng.randint(1, 9))
        elif kind < 0.86:
            # Without a name and a current utterance it would be for whichever is left, which timing decides.
            plan.cancel(name if plan.named(name) else "*", **rng.choice(({}, {"played_ms": 200})))
        elif kind < 0.87:
            plan.cancel("*")
        elif kind < 0.9:
            plan.push(name, "bad\0")
        elif kind < 0.97:
            report = {"played_ms": rng.randint(0, 3000)}
            plan.requests.append(speak_pb2.SpeakRequest(playback=report, utterance_id=name))
        elif kind < 0.98:
            plan.requests.append(speak_pb2.SpeakRequest(utterance_id=name))
            plan.is_fatal = True
        else:
            if not plan.requests:
                plan.is_fatal = False
            plan.requests.append(speak_pb2.SpeakRequest(config=config))
    if is_paced:  # to be heard to the end would take too long
        plan.cancel("*")
    return plan


def check(plan: Plan, transcript: Transcript, *, trouble: bool) -> None:
    """`trouble`: workers died or the server drained meanwhile, so that any utterance may have failed as UNAVAILABLE."""
    if trouble:
        assert transcript.done.keys() <= set(plan.opened)
    else:
        assert sorted(transcript.done) == sorted(plan.opened), "one done for each utterance"
    started = [name for name, kind in transcript.kinds if kind == "started"]
    assert started == [name for name in plan.opened if name in started], "spoken in the order of creation"
    for name, done in transcript.done.items():
        unavailable = trouble and done.reason == FAILED and done.error.code == grpc.StatusCode.UNAVAILABLE.value[0]
        check_reason(plan, name, done.reason, unavailable)
        check_flushes(plan, name, transcript, complete=done.reason == COMPLETED)
        check_speech(plan.text[name], transcript.pcm.get(name, b""), done)
        for mark in transcript.marks.get(name, []):
            assert plan.text[name][mark.text_start : mark.text_end] == mark.text


def check_reason(plan: Plan, name: str, reason: int, unavailable: bool) -> None:
    if unavailable:
        return
    if name in plan.failed - plan.cancelled:
        assert reason == FAILED
    elif name not in plan.failed | plan.cancelled:
        assert reason == COMPLETED
    else:
        assert reason in (COMPLETED, CANCELLED, FAILED)


def check_flushes(plan: Plan, name: str, transcript: Transcript, *, complete: bool) -> None:
    answered: list[int] = []
    for response in transcript.responses:
        if response.utterance_id == name and response.HasField("flush_done"):
            answered.append(response.flush_done.flush_id)
        elif response.utterance_id == name and response.HasField("audio"):
            assert response.audio.flush_id == (answered[-1] if answered else 0), "that of the last flush before it"
    asked = plan.flushes[name]
    assert answered == (asked if complete else asked[: len(answered)]), "each flush is answered, in order"


def check_speech(text: str, pcm: bytes, done: synthesis_pb2.UtteranceDone) -> None:
    stats = done.stats
    assert stats.sent_ms == len(pcm) // 48
    assert 0 <= stats.spoken_chars <= stats.input_chars
    if done.reason == COMPLETED:
        assert stats.input_chars == stats.spoken_chars == len(text)
    tail = unspoken(text, pcm)
    assert tail is not None, "what was said is not what was written"
    assert done.reason != COMPLETED or not is_speakable(tail)


def unspoken(text: str, pcm: bytes) -> str | None:
    """What is left of the text after its audio; None if this is not its audio, segment by segment."""
    states = {(0, 0)}  # how far the text goes, frames of the segment
    samples = np.frombuffer(pcm, "<i2")
    is_pause = (samples == 0) & (np.roll(samples, 1) == 0) | (samples == 0) & (np.roll(samples, -1) == 0)
    for tone in samples[~is_pause][::FRAME_SAMPLES].tolist():  # behind a paragraph is a pause: more than one zero
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


async def play(
    stub: Any,
    plan: Plan,
    *,
    after_write: Callable[[], Awaitable[None]],
    after_read: Callable[[], Awaitable[None]],
    may_end: bool = False,
) -> Transcript | None:
    """The script in a call of its own: what came back, unless it ends the session itself. `may_end`: the server may,
    too, before its time."""
    call, transcript = stub.Speak(), Transcript()
    may_break = plan.is_fatal or may_end

    async def write() -> None:
        try:
            for request in plan.requests:
                await call.write(request)
                await after_write()
            if plan.is_abandoned:
                call.cancel()
            else:
                await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            assert may_break, await call.details()

    writing = asyncio.create_task(write())
    try:
        while (response := await call.read()) is not grpc.aio.EOF:
            transcript.add(response)
            await after_read()
    except grpc.aio.AioRpcError:
        assert may_break, await call.details()
    except asyncio.CancelledError:
        assert plan.is_abandoned
    await writing
    code, details = await call.code(), await call.details()
    if plan.is_abandoned and code == grpc.StatusCode.CANCELLED:
        return None
    if plan.is_fatal:
        assert code in WRONG or details == STATUS_LOST or may_end, details
        return None
    assert code == grpc.StatusCode.OK or may_end, details
    return transcript
