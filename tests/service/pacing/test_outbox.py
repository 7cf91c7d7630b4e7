import asyncio

import pytest

from sonorant.service.errors import LimitReached
from sonorant.service.pacing.outbox import FEW, MAX_POSTED, Outbox
from sonorant.tts.v1.speak_pb2 import SpeakResponse


def response(name: str) -> SpeakResponse:
    return SpeakResponse(utterance_id=name)


async def test_what_is_posted_overtakes_what_is_sent() -> None:
    outbox: Outbox[SpeakResponse] = Outbox()
    sending = asyncio.create_task(outbox.send(response("audio"), lambda: None))
    await asyncio.sleep(0)
    outbox.post(response("control"))
    responses = outbox.responses()
    assert [(await anext(responses)).utterance_id for _ in range(2)] == ["control", "audio"]
    await asyncio.sleep(0)
    assert not sending.done(), "it is being written"
    outbox.close()
    assert [response async for response in responses] == []
    await sending


async def test_what_is_put_is_first_and_waits_for_the_writer_to_be_woken() -> None:
    outbox: Outbox[SpeakResponse] = Outbox()
    responses = outbox.responses()
    first = asyncio.create_task(anext(responses))
    await asyncio.sleep(0)  # the writer waits
    outbox.put(response("greeting"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not first.done(), "nobody has woken it"
    outbox.wake()
    outbox.post(response("started"))
    assert (await first).utterance_id == "greeting"
    assert (await anext(responses)).utterance_id == "started"


async def test_a_send_that_is_cancelled_takes_its_response_back() -> None:
    outbox: Outbox[SpeakResponse] = Outbox()
    taken: list[str] = []
    sending = asyncio.create_task(outbox.send(response("audio"), lambda: taken.append("audio")))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait([sending])
    outbox.post(response("done"))
    outbox.close()
    assert [r.utterance_id async for r in outbox.responses()] == ["done"]
    assert taken == []


async def test_a_send_that_is_cancelled_while_written_is_not_written_twice() -> None:
    outbox: Outbox[SpeakResponse] = Outbox()
    taken: list[str] = []
    sending = asyncio.create_task(outbox.send(response("audio"), lambda: taken.append("audio")))
    responses = outbox.responses()
    assert (await anext(responses)).utterance_id == "audio"
    sending.cancel()
    await asyncio.wait([sending])
    outbox.post(response("done"))
    outbox.close()
    assert [r.utterance_id async for r in responses] == ["done"]
    assert taken == ["audio"]


async def test_what_nobody_has_to_know_of_waits_only_behind_many() -> None:
    outbox: Outbox[SpeakResponse] = Outbox()
    for number in range(FEW):
        await asyncio.wait_for(outbox.send(response(f"{number}")), 60)
    late = asyncio.create_task(outbox.send(response("late")))
    await asyncio.sleep(0)
    assert not late.done()
    responses = outbox.responses()
    sent = [(await anext(responses)).utterance_id for _ in range(FEW + 1)]
    assert sent == [*map(str, range(FEW)), "late"]
    outbox.close()
    assert [response async for response in responses] == []
    await late


async def test_an_error_comes_at_once() -> None:
    outbox: Outbox[SpeakResponse] = Outbox()
    outbox.post(response("a"))
    outbox.close(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await anext(outbox.responses())


async def test_a_client_that_does_not_read_cannot_fill_the_memory() -> None:
    outbox: Outbox[SpeakResponse] = Outbox()
    for _ in range(MAX_POSTED + 1):
        outbox.post(response("warning"))
    with pytest.raises(LimitReached, match="read while sending"):
        await anext(outbox.responses())
