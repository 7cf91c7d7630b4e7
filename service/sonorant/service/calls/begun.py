"""A coroutine that begins at once, before anybody waits for it. Whoever awaits it goes on with it.

A task would begin only in the next turn of the event loop. Python 3.12 has eager tasks.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """Await it once, or `drop` it."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        """Run the coroutine up to the future for which it waits first."""
        self._coroutine = coroutine
        self._future: asyncio.Future[Any] = coroutine.send(None)
        self._is_awaited = False

    def __await__(self) -> Generator[Any, None, T]:
        self._is_awaited = True
        try:
            yield self._future
        except BaseException as error:  # whoever awaits it was cancelled
            self._coroutine.throw(error)
        return (yield from self._coroutine.__await__())

    def drop(self) -> None:
        """End the coroutine if nobody awaits it."""
        if self._is_awaited:
            return
        self._coroutine.close()
        if not self._future.cancel() and not self._future.cancelled():
            self._future.exception()  # or else asyncio reports an error that nobody looked at
