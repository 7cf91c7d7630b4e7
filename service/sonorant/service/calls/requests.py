"""The requests of a call as they come in: messages or a refusal, and soon."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from sonorant.service.calls.loop_share import Part
from sonorant.service.calls.wire import counted
from sonorant.service.errors import ConfigRequired, MalformedMessage, MessageTooLarge, RequestError

# When a client cancels the call, its requests end before the cancellation arrives: wait and see which it was.
END_OF_REQUESTS_S = 0.002


# What gRPC lets through is more, so that most messages that are too large are refused with a status of ours.
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
LARGE_MESSAGE_BYTES = 32 * 1024  # more than any text; to read so much takes up to 2 ms if it is of many small parts


class _Unusable:
    """Stands for a message that cannot be used."""

    def __init__(self, error: RequestError) -> None:
        self.error = error


class _Unread:
    """Stands for a large message until it may be read."""

    def __init__(self, data: bytes, read: Callable[[bytes], Any], message: Any) -> None:
        self._data = data
        self._read = read
        self._message = message

    async def read(self, part: Part) -> Any:
        """Raises MalformedMessage before it is parsed, if it has too many parts."""
        if self._message is not None:
            steps = counted(self._data, self._message)
            while await part.do(next, steps, False):
                pass
        return await part.do(self._read, self._data)


def tolerant(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """What cannot be read becomes an object that says so: gRPC would end the call with the text of an exception."""
    message = getattr(
        getattr(deserializer, "__self__", None), "DESCRIPTOR", None
    )  # it is the method of a message class

    def deserialize(data: bytes) -> Any:
        if len(data) > MAX_MESSAGE_BYTES:
            return _Unusable(MessageTooLarge(len(data), MAX_MESSAGE_BYTES))
        return _Unread(data, read, message) if len(data) > LARGE_MESSAGE_BYTES else read(data)

    def read(data: bytes) -> Any:
        try:
            return deserializer(data)
        except Exception as error:
            what = (
                f"a request is not a valid message of this method ({error}); strings must be UTF-8, and the client's "
            )
            return _Unusable(MalformedMessage(what + "stubs must be made from this server's .proto files"))

    return deserialize


async def checked(
    requests: Any, first_within_s: float, later_within_s: float | None, begins: str, part: Part
) -> AsyncGenerator[Any, None]:
    """The requests, as long as they are messages. The first one must come soon, since a call takes a place.

    `later_within_s`: None where the method has a limit of its own. `begins`: what a call of the method begins with.

    To be closed by whoever does not read them to the end: until then gRPC's iterator is in a cycle with all that gRPC
    knows of the call, and since it is finalized, too, it takes two collections to be freed.
    """
    within_s: float | None = first_within_s
    async with aclosing(aiter(requests)) as requests:
        while True:
            if within_s is None:
                request = await anext(requests, None)
            else:
                try:
                    async with asyncio.timeout(within_s):
                        request = await anext(requests, None)
                except TimeoutError:
                    raise _late(f"no message came within {within_s:g} s", begins) from None
            if request is None:
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
