"""A program that begins to listen and leaves, again and again, and prints how many bytes that left allocated."""

import asyncio
import random
import sys
from contextlib import suppress

from sonorant.client.client import SpeechClient
from sonorant.client.speaking.session import Session
from tests.allocated import allocated_bytes

LONG = "a" * 50_000  # whose audio is a message of 100 KB


async def main(target: str) -> None:
    left = [await _left(target, num_times) for num_times in (50, 400)]
    print(left[1] - left[0])


async def _left(target: str, num_times: int) -> int:
    async with SpeechClient(target) as client:
        await _leave(client, num_times, random.Random(7))
    least = allocated_bytes()
    for _ in range(20):  # gRPC frees what was under way later, in threads of its own
        await asyncio.sleep(0.1)
        least = min(least, allocated_bytes())
    return least


async def _leave(client: SpeechClient, num_times: int, chance: random.Random) -> None:
    for _ in range(num_times):
        async with client.speak() as session:
            for _ in range(5):
                await session.send_text(LONG)
            listening = asyncio.create_task(_listen(session))
            for _ in range(chance.randint(5, 50)):
                await asyncio.sleep(0)
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


async def _listen(session: Session) -> None:
    async for _ in session:
        pass


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
