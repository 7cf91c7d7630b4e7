"""Sessions of one key that knock at the same time."""

import asyncio
from typing import Any

import grpc

from sonorant.tts.v1 import speak_pb2
from tests.service.harness import Transcript, config, read_all, read_until
from tests.service.keys import ADA, bearer
from tests.service.scripts import STATUS_LOST


class Visitor:
    """A session that tries to be let in, and what became of it."""

    def __init__(self, stub: Any, *refusals: grpc.StatusCode) -> None:
        """`refusals`: statuses that may come as well, in place of that of a limit."""
        self._refusals = (grpc.StatusCode.RESOURCE_EXHAUSTED, *refusals)
        self._call = stub.Speak(metadata=bearer(ADA))
        self._transcript = Transcript()

    async def begin(self) -> bool:
        try:
            await self._call.wait_for_connection()
            await self._call.write(speak_pb2.SpeakRequest(config=config()))
            await read_until(self._call, self._transcript, "session")
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            code, details = await self._call.code(), await self._call.details()
            assert code in self._refusals or details == STATUS_LOST, details
            return False
        return True

    @property
    def is_inside(self) -> bool:
        """Whether it still was, when the server was last heard of."""
        return not self._call.done()

    async def leave(self) -> None:
        await self._call.done_writing()
        await read_all(self._call, self._transcript)


async def let_in(callers: list[Visitor]) -> list[Visitor]:
    """All at the same time."""
    answers = await asyncio.gather(*(caller.begin() for caller in callers))
    return [caller for caller, answer in zip(callers, answers, strict=True) if answer]


async def number_let_in(callers: list[Visitor]) -> int:
    """How many get in at the same time. They leave again, so that the next ones find the places free."""
    inside = await let_in(callers)
    for caller in inside:
        await caller.leave()
    return len(inside)
