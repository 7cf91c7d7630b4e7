"""What is read of requests, and when: large messages of many callers do not all come in the same turn of the loop."""

import asyncio
from collections import Counter

import grpc

from sonorant.service.calls.loop_share import PER_TURN_S, LoopShare
from sonorant.service.calls.requests import LARGE_MESSAGE_BYTES, checked, tolerant


async def test_large_messages_are_read_in_turn_and_small_ones_at_once() -> None:
    turn, now_s, read = 0, 0.0, Counter[int]()

    def deserialize(data: bytes) -> int:
        nonlocal now_s
        now_s += 2 * PER_TURN_S * (len(data) > LARGE_MESSAGE_BYTES)
        read[turn] += 1
        return len(data)

    share = LoopShare(lambda: now_s)

    async def one_request(num_bytes: int) -> int:
        requests = iter([tolerant(deserialize)(bytes(num_bytes)), grpc.aio.EOF])

        async def read() -> object:
            return next(requests)

        every = checked(read, 10.0, None, "it", share.of("a"))
        (request,) = [request async for request in every]
        assert isinstance(request, int)
        return request

    sizes = [LARGE_MESSAGE_BYTES, LARGE_MESSAGE_BYTES + 1] * 5
    tasks = [asyncio.create_task(one_request(size)) for size in sizes]
    for turn in range(20):  # noqa: B007  read above
        await asyncio.sleep(0)
    assert await asyncio.gather(*tasks) == sizes
    assert sorted(read.values()) == [1, 1, 1, 1, 6], "one large message each, and with the first of them all small ones"
    assert sorted(read)[1:] == [sorted(read)[0] + 2 * n for n in range(1, 5)]
