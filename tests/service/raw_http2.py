"""A client that speaks HTTP/2 by hand, for what no gRPC library would do: closed windows, unfinished calls, noise."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes, Settings

DEFAULTS = {SettingCodes.MAX_HEADER_LIST_SIZE: 65_536, SettingCodes.ENABLE_PUSH: 0}
CLOSED_WINDOW = {SettingCodes.INITIAL_WINDOW_SIZE: 0}


def framed(message: Any) -> bytes:
    """A protobuf message as gRPC sends it: not compressed, with its length."""
    data = message.SerializeToString()
    return b"\0" + len(data).to_bytes(4, "big") + data


class RawConnection:
    """Nothing is sent but what is asked for; windows of the connection are opened only by `take`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        self.http2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self.writer = writer
        self._reader = reader
        self._address = address
        self._events: list[Event] = []

    async def call(
        self, method: str, *messages: Any, metadata: Sequence[tuple[str, str]] = (), end: bool = True
    ) -> int:
        """Begin a call ("/package.Service/Method"), send its messages, and half-close; the stream's number."""
        stream = self.http2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", self._address),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *metadata,
        ]
        self.http2.send_headers(stream, headers, end_stream=end and not messages)
        for number, message in enumerate(messages, 1):
            self.http2.send_data(stream, framed(message), end_stream=end and number == len(messages))
        await self.flush()
        return stream

    async def flush(self) -> None:
        self.writer.write(self.http2.data_to_send())
        await self.writer.drain()

    async def read(self, *kinds: type[Event], stream: int | None = None) -> Event:
        """The next event of one of these kinds, of that stream. Raises ConnectionError once the server has closed."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if isinstance(event, kinds) and stream in (None, getattr(event, "stream_id", None)):
                    return event
            data = await self._reader.read(65_536)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._events += self.http2.receive_data(data)
            await self.flush()  # acknowledgements of settings and pings

    async def is_answered(self, stream: int) -> Mapping[str, str]:
        """The headers that end the call: its trailers, or those of a response without a body."""
        while True:
            event = await self.read(ResponseReceived, TrailersReceived, StreamReset, stream=stream)
            assert not isinstance(event, StreamReset), f"reset with {event.error_code}"
            headers = dict(event.headers)
            if "grpc-status" in headers:
                return headers


@asynccontextmanager
async def raw_connection(address: str, settings: Mapping[int, int] | None = None) -> AsyncIterator[RawConnection]:
    """Both sides have told their settings when this is entered."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    connection = RawConnection(reader, writer, address)
    connection.http2.local_settings = Settings(client=True, initial_values={**DEFAULTS, **(settings or {})})
    try:
        connection.http2.initiate_connection()
        await connection.flush()
        await connection.read(RemoteSettingsChanged)
        yield connection
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
