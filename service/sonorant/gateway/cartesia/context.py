"""A context of Cartesia's protocol: a text that comes piece by piece, and its audio. It is one Speak call to a
server."""

from collections.abc import Awaitable, Callable
from typing import Any

from sonorant.gateway.cartesia.answers import chunk_head, error_message, part, timestamps
from sonorant.gateway.cartesia.request import Message
from sonorant.gateway.encoders import raw_encoder
from sonorant.gateway.errors import Refusal, from_status
from sonorant.gateway.metrics import GatewayMetrics
from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.upstream.endings import told_at_end
from sonorant.gateway.upstream.servers import Servers
from sonorant.gateway.web.feed import Feed
from sonorant.gateway.web.json_text import with_audio
from sonorant.tts.v1.speak_pb2 import Cancel, EndUtterance, Flush, SpeakConfig, SpeakRequest

DOOR = "cartesia"

Send = Callable[[dict[str, Any] | bytes], Awaitable[None]]


class Context:
    def __init__(self, context_id: str, first: Message, config: SpeakConfig) -> None:
        self.context_id = context_id
        self._config = config
        self._encode = raw_encoder(first.output_format.encoding, first.output_format.sample_rate)
        self._feed = Feed()
        self._chunk_head = chunk_head(context_id)
        self._num_flushes = 0
        self._ended = self._cancelled = False
        self.failed = False
        self.ending: dict[str, Any] = {}

    def put(self, message: Message) -> None:
        """Take a message. Raises Refusal if too much text waits already, or if the text has ended."""
        if self._cancelled:
            return  # the rest of a cancelled text is not spoken
        if self._ended:
            raise Refusal(400, f"context {self.context_id!r} has ended; use a new context_id for a new text")
        if message.transcript:
            self._feed.put(SpeakRequest(text=message.transcript))
        if message.flush:
            self._num_flushes += 1
            self._feed.put(SpeakRequest(flush=Flush(flush_id=self._num_flushes)))
        if not message.more:
            self._ended = True
            self._feed.put(SpeakRequest(end=EndUtterance()))

    def cancel(self) -> None:
        if self._cancelled:
            return
        self._cancelled = True
        self._feed.put(SpeakRequest(cancel=Cancel()))

    async def run(self, servers: Servers, call: UpstreamCall, metrics: GatewayMetrics, send: Send) -> None:
        """Speak to the end and send everything but `done`, errors included. Raises ConnectionError if the caller is
        gone."""
        try:
            speaking = await servers.speak(self._config, call, self._feed.take_first())
        except Refusal as refusal:
            return await self._fail(refusal, send)
        self._feed.start(speaking)
        try:
            with metrics.speaking(DOOR) as spoken:
                while (response := await speaking.read()) is not None:
                    match response.WhichOneof("payload"):
                        case "audio":
                            data = response.audio.data
                            spoken.audio(len(data))
                            if data:
                                await send(with_audio(self._chunk_head, await self._encode.encode(data)))
                        case "marks":
                            await send(timestamps(self.context_id, response.marks))
                        case "flush_done":
                            flush_id = response.flush_done.flush_id
                            await send(part("flush_done", self.context_id, flush_id=flush_id, flush_done=True))
                        case "done" if response.done.HasField("error"):
                            raise from_status(response.done.error)
                        case "done":
                            self.ending = told_at_end(response.done, call)
                            self._feed.end()  # only now, because a cancel could not be sent after it
        except Refusal as refusal:
            await self._fail(refusal, send)
        finally:
            speaking.close()
            await self._feed.stop()

    async def _fail(self, refusal: Refusal, send: Send) -> None:
        self.failed = True
        await send(error_message(refusal, self.context_id))
