"""The client library for scripts without asyncio: the same names, as plain calls.

    from sonorant.client.sync import SpeechClient

    with SpeechClient() as client:
        client.synthesize("Hello, world.").save("hello.wav")

One event loop in a thread of its own makes the calls of all clients. Methods may be called from any thread, and block
until they are done.
"""

import asyncio
import atexit
import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from sonorant.client import client as with_asyncio
from sonorant.client.access import Access
from sonorant.client.clip import Clip as ClipWithAsyncio
from sonorant.client.configs import scheduling, synthesis_config, text_policy, utterance_config
from sonorant.client.events import Event
from sonorant.client.speaking.session import Session as SessionWithAsyncio
from sonorant.client.transport.retries import Retry
from sonorant.tts.v1.speak_pb2 import SessionStarted

__all__ = ["Clip", "Session", "SpeechClient", "scheduling", "synthesis_config", "text_policy", "utterance_config"]

P = ParamSpec("P")
T = TypeVar("T")
Client = with_asyncio.SpeechClient


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sonorant", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C, too
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> list[T]:
            try:
                return [await anext(items)]
            except StopAsyncIteration:
                return []

        while following_items := self.run(following()):
            yield from following_items

    def close(self) -> None:
        if self._thread.is_alive():  # not in a fork
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


@functools.cache
def _loop() -> _Loop:
    """One for all clients, to the end of the process. If each had one, grpcio would lose what is left to tell of a call
    when its client is closed: it keeps the call's connection then, and logs an error."""
    loop = _Loop()
    atexit.register(loop.close)
    return loop


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SpeechClient", P], T]:
    def call(self: "SpeechClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._client, *args, **kwargs))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


def _iterating(
    method: Callable[Concatenate[Client, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate["SpeechClient", P], Iterator[T]]:
    def call(self: "SpeechClient", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self._client, *args, **kwargs)
        try:
            yield from self._loop.iterate(items)
        finally:
            if not self._loop.is_closed:  # an iterator may be left until the process ends
                self._loop.run(items.aclose())

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class Clip(ClipWithAsyncio):
    def play(self) -> None:  # type: ignore[override]
        """Play the clip, which must be PCM, with ffplay or aplay; return when it was heard."""
        asyncio.run(ClipWithAsyncio(self.response).play())


class Session:
    """A session for one thread, or for one that sends and one that iterates; see the one with asyncio."""

    def __init__(self, session: SessionWithAsyncio, loop: _Loop) -> None:
        self._session = session
        self._loop = loop

    def __enter__(self) -> Self:
        self._loop.run(self._session.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.run(self._session.__aexit__(None, None, None))

    def __getattr__(self, name: str) -> Any:
        """The methods of the session with asyncio, as plain calls."""
        value = getattr(self._session, name)
        if not asyncio.iscoroutinefunction(value):
            return value
        return lambda *args, **kwargs: self._loop.run(value(*args, **kwargs))

    @property
    def started(self) -> SessionStarted:
        return self._session.started

    def __iter__(self) -> Iterator[Event]:
        return self._loop.iterate(self._session)


class SpeechClient:
    """Every method raises the errors of `sonorant.client.errors`. Leave the context, or call `close`, in the end."""

    def __init__(
        self,
        target: str = with_asyncio.DEFAULT_TARGET,
        access: Access | None = None,
        *,
        timeout_s: float | None = None,
        retry: Retry = Retry(),  # noqa: B008
    ) -> None:
        self.target = target
        self._loop = _loop()

        async def connect() -> Client:
            return Client(target, access, timeout_s=timeout_s, retry=retry)

        self._client = self._loop.run(connect())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._loop.run(self._client.close())

    def limited(self, *, timeout_s: float | None = None, retry: Retry | None = None) -> "SpeechClient":
        """Return this client with other limits, for one call or for many; both use the same connections."""
        other = object.__new__(SpeechClient)
        other.target, other._loop = self.target, self._loop
        other._client = self._client.limited(timeout_s=timeout_s, retry=retry)
        return other

    @functools.wraps(Client.speak)
    def speak(self, *args: Any, **kwargs: Any) -> Session:
        async def make() -> SessionWithAsyncio:
            return self._client.speak(*args, **kwargs)

        return Session(self._loop.run(make()), self._loop)

    @functools.wraps(Client.synthesize)
    def synthesize(self, *args: Any, **kwargs: Any) -> Clip:
        return Clip(self._loop.run(self._client.synthesize(*args, **kwargs)).response)

    stream = _iterating(Client.stream)
    stream_to_file = _blocking(Client.stream_to_file)
    decode = _iterating(Client.decode)
    explain = _blocking(Client.explain)
    capabilities = _blocking(Client.capabilities)
    usage = _blocking(Client.usage)
    health = _blocking(Client.health)
    wait_until_serving = _blocking(Client.wait_until_serving)
    voices = _blocking(Client.voices)
    voice = _blocking(Client.voice)
    create_voice = _blocking(Client.create_voice)
    delete_voice = _blocking(Client.delete_voice)
    export_voice = _blocking(Client.export_voice)
    import_voice = _blocking(Client.import_voice)
    dictionaries = _blocking(Client.dictionaries)
    dictionary = _blocking(Client.dictionary)
    put_dictionary = _blocking(Client.put_dictionary)
    delete_dictionary = _blocking(Client.delete_dictionary)
