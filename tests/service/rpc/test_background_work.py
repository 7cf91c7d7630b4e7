"""Explain takes one turn after another, and rests in between for longer than it works."""

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from sonorant.service.rpc import speech
from sonorant.service.rpc.background_work import REST, BackgroundWork
from sonorant.tts.v1.explain_pb2 import ExplainRequest
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served

Times = list[tuple[float, float]]


def assert_rests(times: Times) -> None:
    for (start_s, end_s), (next_s, _) in pairwise(times):
        assert next_s - end_s >= REST * (end_s - start_s)


async def test_who_comes_next_waits_until_it_has_rested_and_who_gives_up_keeps_nobody() -> None:
    background, times = BackgroundWork(), Times()

    async def work() -> None:
        async with background.turn():
            start_s = time.monotonic()
            await asyncio.sleep(0.002)
            times.append((start_s, time.monotonic()))

    tasks = [asyncio.create_task(work()) for _ in range(5)]
    await asyncio.wait(tasks[:1])
    tasks[1].cancel()  # while it waits for the rest to be over
    await asyncio.wait(tasks)
    assert len(times) == 4
    assert_rests(times)


async def test_explains_of_one_caller_leave_time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    times, explain = Times(), speech.explain

    async def timed(*args: Any) -> Any:
        start_s = time.monotonic()
        response = await explain(*args)
        times.append((start_s, time.monotonic()))
        return response

    monkeypatch.setattr(speech, "explain", timed)
    async with served(FakeEngine()) as server:
        request = ExplainRequest(text="word " * 200)
        answers = await asyncio.gather(*(server.stub.Explain(request) for _ in range(10)))
    assert answers == answers[:1] * 10
    assert len(times) == 10
    assert_rests(times)
