"""A coroutine that begins at once: what it does before it is awaited, and how it ends."""

import asyncio
import gc

import pytest

from sonorant.service.calls.begun import Begun


class Work:
    def __init__(self) -> None:
        self.future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.has_begun = self.is_over = False

    async def do(self) -> str:
        self.has_begun = True
        try:
            return await self.future + await self._more()
        finally:
            self.is_over = True

    async def _more(self) -> str:
        await asyncio.sleep(0)
        return "!"


async def test_it_begins_at_once_and_goes_on_when_it_is_awaited() -> None:
    work = Work()
    begun = Begun(work.do())
    assert work.has_begun
    asyncio.get_running_loop().call_soon(work.future.set_result, "done")
    assert await begun == "done!"


async def test_it_need_not_wait_for_what_is_there_already() -> None:
    work = Work()
    begun = Begun(work.do())
    work.future.set_result("done")
    assert await begun == "done!"


async def test_its_error_is_raised_where_it_is_awaited() -> None:
    work = Work()
    begun = Begun(work.do())
    work.future.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await begun


async def test_it_is_cancelled_with_the_task_that_awaits_it() -> None:
    work = Work()
    begun = Begun(work.do())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await begun
    assert work.is_over and work.future.cancelled()


async def test_it_ends_if_it_is_dropped() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    waiting, failed = Work(), Work()
    both = [Begun(waiting.do()), Begun(failed.do())]
    failed.future.set_exception(ValueError("nobody wants to know"))
    for begun in both:
        begun.drop()
    assert waiting.is_over and waiting.future.cancelled() and failed.is_over
    del waiting, failed, both, begun
    gc.collect()
    assert not reported
