"""Serves connections of Wyoming clients: `describe`, `synthesize`, and texts that come in pieces."""

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any

from sonorant.client import synthesis_config
from sonorant.gateway.encoders import NATIVE_RATE_HZ, silence
from sonorant.gateway.errors import Refusal, from_status
from sonorant.gateway.metrics import GatewayMetrics
from sonorant.gateway.upstream.calls import UpstreamCall, new_request_id
from sonorant.gateway.upstream.catalog import Catalogs
from sonorant.gateway.upstream.endings import told_at_end
from sonorant.gateway.upstream.servers import Servers
from sonorant.gateway.upstream.turn import LoopTurn
from sonorant.gateway.upstream.voices import resolve_voice
from sonorant.gateway.web.connections import OpenConnections
from sonorant.gateway.web.feed import Feed
from sonorant.gateway.web.http import WRITE_TIMEOUT_S
from sonorant.gateway.web.request_log import log_end
from sonorant.gateway.wyoming.info import info
from sonorant.gateway.wyoming.wire import MAX_LINE_BYTES, NotWyoming, WyomingEvent, read_event
from sonorant.tts.v1.speak_pb2 import EndUtterance, SpeakConfig, SpeakRequest
from sonorant.tts.v1.voice_service_pb2 import ListVoicesRequest

log = logging.getLogger(__name__)

DOOR = "wyoming"
IDLE_S = 300.0
_SERVER_IDLE_MS = 330_000  # longer than the caller may be idle, so that the server ends no text that may go on
_FORMAT = {"rate": NATIVE_RATE_HZ, "width": 2, "channels": 1}


class WyomingDoor:
    def __init__(
        self,
        servers: Servers,
        catalogs: Catalogs,
        metrics: GatewayMetrics,
        key: str,
        connections: OpenConnections,
        text_format: str = "",
    ) -> None:
        """`key`, `text_format`: the API key of all callers and how they write, because the protocol has neither."""
        self.servers = servers
        self.catalogs = catalogs
        self.metrics = metrics
        self.connections = connections  # of this process, through all doors
        self.text_format = text_format
        self._key = key
        self._open: dict[asyncio.Task[Any], _Connection] = {}

    def protocol(self) -> asyncio.Protocol:
        """That of a new connection."""
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=MAX_LINE_BYTES), self.serve)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the other side is gone."""
        task = asyncio.current_task()
        assert task is not None
        address, *_ = writer.get_extra_info("peername") or ("",)
        call = UpstreamCall(new_request_id(), self._key, forwarded_for=address)
        connection = _Connection(self, call, reader, writer)
        self._open[task] = connection
        count = self.metrics.sockets.labels(DOOR)
        count.inc()
        try:
            await connection.run()
        except (ConnectionError, TimeoutError):
            pass  # the caller is gone, or does not read any more
        except Exception:
            log.exception("a Wyoming connection failed", extra={"request_id": call.request_id})
        finally:
            count.dec()
            del self._open[task]
            writer.close()

    async def drain(self, grace_s: float) -> None:
        """Give connections `grace_s` to finish what they are speaking, then cancel them."""
        for connection in self._open.values():
            connection.go_away()
        if self._open:
            _, late = await asyncio.wait(list(self._open), timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class _Connection:
    def __init__(
        self, door: WyomingDoor, call: UpstreamCall, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._door = door
        self._call = call
        self._reader = reader
        self._writer = writer
        self._feed: Feed | None = None  # for a text that comes in pieces
        self._speaking: asyncio.Task[None] | None = None
        self._leaving = False
        self._turn = LoopTurn()

    def go_away(self) -> None:
        self._leaving = True
        if self._speaking is None:
            self._writer.close()

    async def run(self) -> None:
        try:
            while not self._leaving or self._speaking is not None:
                await self._turn.end()  # thousands of events may have arrived together
                async with asyncio.timeout(IDLE_S):
                    event = await read_event(self._reader)
                if event is None:
                    return
                try:
                    await self._take(event)
                except Refusal as refusal:
                    await self._send_error(refusal)
        except NotWyoming as error:
            await self._send(WyomingEvent("error", {"text": str(error), "code": "not_wyoming"}))
        finally:
            if self._speaking is not None:
                self._speaking.cancel()
                with suppress(asyncio.CancelledError):
                    await self._speaking

    async def _take(self, event: WyomingEvent) -> None:
        match event.type:
            case "describe":
                await self._send(WyomingEvent("info", await self._info()))
            case "synthesize" if self._feed is None:  # otherwise it only repeats the text that came in pieces
                text = _text(event)
                feed = await self._begin(event, streamed=False)
                feed.put(SpeakRequest(text=text))
                feed.put(SpeakRequest(end=EndUtterance()))
                feed.end()
            case "synthesize-start":
                self._end()  # end an unfinished text, or `_begin` would wait for it for ever
                self._feed = await self._begin(event, streamed=True)
            case "synthesize-chunk" if self._feed is not None:
                if text := _text(event):
                    self._feed.put(SpeakRequest(text=text))
            case "synthesize-stop":
                self._end()
            case "ping":
                await self._send(WyomingEvent("pong", event.data))

    def _end(self) -> None:
        """End the text that comes in pieces, if there is one."""
        if self._feed is not None:
            self._feed.put(SpeakRequest(end=EndUtterance()))
            self._feed.end()
            self._feed = None

    async def _info(self) -> dict[str, Any]:
        request = ListVoicesRequest(page_size=1000)
        answer = await self._door.servers.unary(lambda server: server.voices.ListVoices, request, self._call)
        return info(answer.voices)

    async def _begin(self, event: WyomingEvent, *, streamed: bool) -> Feed:
        """Begin a new text, after the one before it was spoken."""
        if self._speaking is not None:
            await asyncio.wait([self._speaking])
        voice = event.data.get("voice")
        voice = voice if isinstance(voice, dict) else {}
        catalog = await self._door.catalogs.get(self._call)
        name, language = str(voice.get("name") or ""), str(voice.get("language") or "")
        synthesis = synthesis_config(
            voice=resolve_voice(name, catalog.presets),
            language="" if name else language,
            text_format=self._door.text_format,
        )
        synthesis.audio.sample_rate_hz = NATIVE_RATE_HZ
        feed = Feed()
        self._speaking = asyncio.create_task(
            self._speak(
                SpeakConfig(synthesis=synthesis, max_lead_ms=0, idle_timeout_ms=_SERVER_IDLE_MS), feed, streamed
            )
        )
        return feed

    async def _speak(self, config: SpeakConfig, feed: Feed, streamed: bool) -> None:
        begin_s = time.monotonic()
        status, refused = 499, None  # as proxies log a caller who hung up
        try:
            try:
                with self._door.connections.busy(self._writer.transport):
                    await self._say(config, feed)
                status = 200
            except Refusal as refusal:
                status, refused = refusal.status, refusal
                await self._send_error(refusal)
            if streamed:
                await self._send(WyomingEvent("synthesize-stopped"))
        except (ConnectionError, TimeoutError):
            self._writer.transport.abort()  # the caller does not read any more
        finally:
            log_end(DOOR, status, time.monotonic() - begin_s, refused, request_id=self._call.request_id)
            self._speaking = None
            if self._leaving:
                self._writer.close()

    async def _say(self, config: SpeakConfig, feed: Feed) -> None:
        speaking = await self._door.servers.speak(config, self._call, feed.take_first())
        feed.start(speaking)
        position_ms, begun, ending = 0, False, dict[str, Any]()
        try:
            with self._door.metrics.speaking(DOOR) as spoken:
                while (response := await speaking.read()) is not None:
                    if response.HasField("done") and response.done.HasField("error"):
                        raise from_status(response.done.error)
                    if response.HasField("done"):
                        ending = told_at_end(response.done, self._call)
                    if response.HasField("audio") and response.audio.data:
                        spoken.audio(len(response.audio.data))
                        if not begun:
                            begun = await self._begin_audio()
                        await self._send(
                            WyomingEvent("audio-chunk", {**_FORMAT, "timestamp": position_ms}, response.audio.data)
                        )
                        position_ms += response.audio.num_samples * 1000 // NATIVE_RATE_HZ
            if not begun:
                begun = await self._begin_audio()
                await self._send(WyomingEvent("audio-chunk", {**_FORMAT, "timestamp": 0}, silence(NATIVE_RATE_HZ)))
            await self._send(WyomingEvent("audio-stop", {"timestamp": position_ms, **ending}))
        finally:
            speaking.close()
            await feed.stop()

    async def _begin_audio(self) -> bool:
        await self._send(WyomingEvent("audio-start", {**_FORMAT, "timestamp": 0}))
        return True

    async def _send_error(self, refusal: Refusal) -> None:
        await self._send(WyomingEvent("error", {"text": refusal.message, "code": refusal.code or str(refusal.status)}))

    async def _send(self, event: WyomingEvent) -> None:
        if self._writer.is_closing():  # uvloop would raise another error
            raise ConnectionResetError("the other side is gone")
        self._writer.write(event.to_bytes())
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._writer.drain()


def _text(event: WyomingEvent) -> str:
    text = event.data.get("text")
    if not isinstance(text, str):
        raise Refusal(400, "text: a string is needed", param="text")
    return text
