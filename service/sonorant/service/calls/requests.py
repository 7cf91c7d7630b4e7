"""The incoming requests of a call: each is checked to be a valid message that came in time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import grpc

from sonorant.service.calls.loop_share import LoopAccess
from sonorant.service.calls.wire import counted
from sonorant.service.errors import ConfigRequired, MalformedMessage, MessageTooLarge, RequestError

# When a client cancels a call, its requests end shortly before the cancellation arrives. Wait so long to tell this from
# a call that ended without a request.
END_OF_REQUESTS_S = 0.002


# gRPC's own limit is higher, so that most messages that are too large get a status of ours.
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
LARGE_MESSAGE_BYTES = 32 * 1024  # more than any text; parsing this many bytes of small parts takes up to 2 ms


class _Unusable:
    """Stands for a message that cannot be read."""

    def __init__(self, error: RequestError) -> None:
        self.error = error


class _Unread:
    """Stands for a large message that is not parsed yet."""

    def __init__(self, data: bytes, read: Callable[[bytes], Any], message: Any) -> None:
        self._data = data
        self._read = read
        self._message = message

    async def read(self, part: LoopAccess) -> Any:
        """Parse the message as part of the caller's share. Raises MalformedMessage first if it has too many parts."""
        if self._message is not None:
            steps = counted(self._data, self._message)
            while await part.do(next, steps, False):
                pass
        return await part.do(self._read, self._data)


def tolerant(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Wrap a deserializer so that it returns an `_Unusable` instead of raising.

    If it raised, gRPC would end the call with the text of the exception. Large messages become an `_Unread`.
    """
    message = getattr(
        getattr(deserializer, "__self__", None), "DESCRIPTOR", None
    )  # a deserializer is a method of a message class

    def deserialize(data: bytes) -> Any:
        if len(data) > MAX_MESSAGE_BYTES:
            return _Unusable(MessageTooLarge(len(data), MAX_MESSAGE_BYTES))
        return _Unread(data, read, message) if len(data) > LARGE_MESSAGE_BYTES else read(data)

    def read(data: bytes) -> Any:
        try:
            return deserializer(data)
        except Exception as error:
            what = (
                f"a request is not a valid message for this method ({error}); strings must be UTF-8, and the client's "
            )
            return _Unusable(MalformedMessage(what + "stubs must be made from this server's .proto files"))

    return deserialize


async def checked(
    read: Callable[[], Awaitable[Any]],
    first_within_s: float,
    later_within_s: float | None,
    begins: str,
    part: LoopAccess,
) -> AsyncGenerator[Any, None]:
    """Yield the requests, and raise a RequestError at the first that is invalid or late.

    `read`: returns the next request or gRPC's EOF. `first_within_s` limits the wait for the first request, since the
    call takes a place meanwhile. `later_within_s`: the same for later ones; None if the method has its own limit.
    `begins`: what a call of this method begins with. `part`: the caller's share of the event loop, for large messages.

    A reader that stops early must close this generator.
    """
    within_s: float | None = first_within_s
    while True:
        if within_s is None:
            request = await read()
        else:
            try:
                async with asyncio.timeout(within_s):
                    request = await read()
            except TimeoutError:
                raise _late(f"no message came within {within_s:g} s", begins) from None
        if request is grpc.aio.EOF:
            return
        if isinstance(request, _Unread):
            request = await request.read(part)
        if isinstance(request, _Unusable):
            raise request.error
        yield request
        within_s = later_within_s


def _late(what: str, begins: str) -> RequestError:
    if begins == "config":
        return ConfigRequired(f"{what}; begin with config")
    return MalformedMessage(f"{what}; send {begins} with the call")
