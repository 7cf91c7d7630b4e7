"""Random sessions while workers are killed: what has begun is spoken to its end, as it is when nobody is killed."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import grpc

from sonorant.client.speaking.journal import Journal
from sonorant.service.text.segmenter import BUFFER_DELAYS_MS
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from tests.fuzz.rough import PATIENCE_S, Rough
from tests.service.harness import Transcript, assert_same_audio
from tests.service.scripts import COMPLETED, FAILED, PIECES, SEED, Plan, check_flushes, draw, play

AT_ONCE = 4  # sessions of scripts; one more is given up and resumed
MOST_RESPONSES = 60  # until a worker is killed
RESUMABLE = speak_pb2.SpeakConfig(resumable=True, synthesis={"sampling": {"seed": SEED}})
TEXT = "It is said in two calls. And then it is over."
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE.value[0]


async def run_killed_sessions(target: Rough, rng: random.Random) -> int:
    """Sessions while a worker is killed, and the same ones again undisturbed. Returns how many messages went out."""
    drawn = [_draw(rng) for _ in range(AT_ONCE)]
    until_kill, give_up_after = rng.randint(1, MOST_RESPONSES), rng.randint(1, 12)
    chance = random.Random(rng.random())
    num_responses = 0

    def on_response() -> None:
        nonlocal num_responses
        num_responses += 1
        if num_responses == until_kill:
            target.kill(rng)

    async with asyncio.timeout(2 * PATIENCE_S):
        *transcripts, resumed = await asyncio.gather(
            *(_run(target.stub, plan, chance, on_response) for plan, _ in drawn),
            _resume(target.stub, give_up_after, on_response),
        )
    if resumed:
        assert_same_audio(resumed, await _resume(target.stub, None, lambda: None))
    target.ends["resumed" if resumed else "not resumed: UNAVAILABLE"] += 1
    for (plan, revised), transcript in zip(drawn, transcripts, strict=True):
        if transcript is not None:
            expected = await _run(target.stub, plan, None, lambda: None)
            assert expected is not None, "it came to an end the first time"
            for name in plan.opened:
                target.ends[_compare(plan, name, name in revised, transcript, expected)] += 1
    await target.check()
    return sum(len(plan.requests) for plan, _ in drawn)


def _draw(rng: random.Random) -> tuple[Plan, set[str]]:
    """A script whose result does not depend on when its messages come, but for utterances that are revised: which."""
    plan, revised = draw(rng), set[str]()
    for request in plan.requests:
        if request.HasField("config") and request.config.text_policy.mode != speak_pb2.COMMIT_MODE_MANUAL:
            request.config.text_policy.max_buffer_delay_ms = BUFFER_DELAYS_MS[-1]  # no pause of ours ends a segment
    if plan.opened and rng.random() < 0.3:
        name, at = rng.choice(plan.opened), rng.randint(1, len(plan.requests))
        revise = {"from_char": rng.randint(0, 12), "text": rng.choice(PIECES)}
        plan.requests.insert(at, speak_pb2.SpeakRequest(utterance_id=name, revise=revise))
        revised.add(name)
    return plan, revised


async def _run(
    stub: Any, plan: Plan, chance: random.Random | None, on_response: Callable[[], None]
) -> Transcript | None:
    """What came back, unless the script ends the session itself. `chance`: of pauses in writing, and in reading."""

    async def pause() -> None:
        if chance is not None and chance.random() < 0.2:
            await asyncio.sleep(chance.random() * 0.1)

    async def after_read() -> None:
        on_response()
        await pause()

    transcript = await play(stub, plan, after_write=pause, after_read=after_read)
    if transcript is not None:
        assert sorted(transcript.done) == sorted(plan.opened), "one done for each utterance"
    return transcript


def _compare(plan: Plan, name: str, is_revised: bool, transcript: Transcript, expected: Transcript) -> str:
    """How the utterance ended, which is as when nobody was killed, or told."""
    done, pcm = transcript.done[name], transcript.pcm.get(name, b"")
    reason = synthesis_pb2.FinishReason.Name(done.reason)
    assert done.stats.sent_ms == len(pcm) // 48
    if name in plan.cancelled | plan.failed or is_revised:
        return f"{reason}, as it may"
    if done.reason == FAILED:
        assert done.error.code == UNAVAILABLE, done.error.message
        return f"{reason}: UNAVAILABLE {'in the middle' if pcm else 'before it was heard'}"
    assert done.reason == expected.done[name].reason
    check_flushes(plan, name, transcript, complete=done.reason == COMPLETED)
    whole = expected.pcm.get(name, b"")
    assert len(pcm) == len(whole), f"{name}: {len(pcm)} bytes are not {len(whole)}"
    if pcm:
        assert_same_audio(pcm, whole)
    return reason


async def _resume(stub: Any, give_up_after: int | None, on_response: Callable[[], None]) -> bytes:
    """What is heard of TEXT by who gives the call up after so many responses and goes on in another; empty: refused."""
    journal, pcm = Journal(), bytearray()
    requests = [journal.text("it", TEXT), journal.end("it")]
    while True:
        call = stub.Speak()
        for request in (speak_pb2.SpeakRequest(config=RESUMABLE), *requests):
            await call.write(request)
        async for response in call:
            on_response()
            if journal.take(response) and response.HasField("audio"):
                pcm += response.audio.data
            if response.HasField("done"):
                await call.done_writing()
                if response.done.reason == FAILED:
                    assert response.done.error.code == UNAVAILABLE, response.done.error.message
                    pcm.clear()
            if give_up_after is not None and (give_up_after := give_up_after - 1) == 0:
                break
        if call.done():
            return bytes(pcm)
        call.cancel()
        if not journal.unfinished:
            return bytes(pcm)
        requests = list(journal.requests_to_resend())
