"""A listener may leave at any moment, in the middle of a message too, and nothing of it is kept."""

import asyncio
import sys

from tests.clients.scripted_server import scripted_server


async def test_who_leaves_while_a_message_comes_in_leaves_nothing_behind() -> None:
    async with scripted_server() as (target, _):
        command = [sys.executable, "-m", "tests.clients.client.transport.leaving", target]
        leaving = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        told, _ = await asyncio.wait_for(leaving.communicate(), 120)
    assert int(told) < 10_000_000, "100 of 350 messages"
