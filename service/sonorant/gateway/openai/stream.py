"""GET /v1/audio/speech/stream: vLLM-Omni's WebSocket, and SGLang-Omni's, which differs a little.

Both wait for the end of a sentence, or of the text; this one speaks words as they come. `input.cancel` is an addition:
it stops the speech, and `session.done` then says what was heard.
"""

import asyncio
from collections import deque
from typing import Any

from aiohttp import web

from sonorant.gateway.errors import Refusal
from sonorant.gateway.openai.stream_request import StreamConfig, parse_config
from sonorant.gateway.openai.utterance import SocketUtterance, error_message
from sonorant.gateway.upstream.turn import LoopTurn
from sonorant.gateway.web.context import CALL, CATALOGS, CONFIG, METRICS, SERVERS
from sonorant.gateway.web.drain import DRAINING
from sonorant.gateway.web.json_input import MAX_UINT32
from sonorant.gateway.web.sockets import GOING_AWAY, Receiver, Sender, conversing
from sonorant.tts.v1.speak_pb2 import SpeakConfig

CONFIG_TIMEOUT_S = 10.0
IDLE_S = 120.0
MAX_TEXT_BYTES = 128 * 1024  # per message
PIECE_CHARS = 8192  # that are split at a time: with many short sentences, some milliseconds
MAX_UTTERANCES = 16  # that have begun and are not over


class _Conversation:
    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._request = request
        self._socket = socket
        self._sender = Sender(request, socket)
        self._turn = LoopTurn()
        self._receiver = Receiver(request, socket, self._turn)
        self._config: StreamConfig | None = None
        self._speak_config = SpeakConfig()
        self._is_sglang = False
        self._utterances: deque[SocketUtterance] = deque()  # those that are not over; the first one is being spoken
        self._current: SocketUtterance | None = None  # the utterance that takes text
        self._num_utterances = 0
        self._num_commits = 0
        self._committed_sentences = 0
        self._new = asyncio.Event()  # set while there are utterances to speak
        self._idle = asyncio.Event()
        self._idle.set()

    async def go_away(self) -> None:
        if not self._utterances:
            await self._socket.close(code=GOING_AWAY)

    async def run(self) -> None:
        speaker = asyncio.create_task(self._speak())
        try:
            while await self._take_next():
                pass
            await self._idle.wait()
            await self._socket.close()
        except ConnectionError:
            pass  # the caller is gone
        finally:
            self._sender.end()
            speaker.cancel()
            await asyncio.gather(speaker, return_exceptions=True)

    async def _take_next(self) -> bool:
        """Read and handle one message; return False if no more should be read."""
        try:
            message = await self._receiver.receive(CONFIG_TIMEOUT_S if self._config is None else IDLE_S)
            if message is None:
                raise ConnectionResetError("the other side is gone")
            return await self._take(message)
        except TimeoutError:
            if self._utterances:
                return True
            await self._sender.send({"type": "error", "message": "no message for too long", "code": "idle_timeout"})
            return False
        except Refusal as refusal:
            await self._sender.send(error_message(refusal))
            return self._config is not None  # without a config the session cannot go on

    async def _take(self, message: dict[str, Any]) -> bool:
        kind = message.get("type")
        if kind == "session.config":
            await self._configure(message)
        elif self._config is None:
            raise Refusal(400, f"session.config must come first, not {str(kind)[:40]!r}", param="type")
        elif kind == "input.text":
            await self._add(message.get("text"))
        elif kind == "input.commit":
            await self._commit()
        elif kind == "input.done":
            self._utterance().end()
            self._current = None
            return not self._is_sglang
        elif kind == "input.cancel":
            played_ms = message.get("played_ms")
            if played_ms is not None and not (type(played_ms) is int and 0 <= played_ms <= MAX_UINT32):
                raise Refusal(400, "played_ms: a whole number of milliseconds is needed", param="played_ms")
            for utterance in self._utterances:
                utterance.cancel(played_ms)
            self._current = None
        elif kind == "session.close":
            if self._current is not None:  # end its text, or the speaker would wait for more
                self._current.end()
            return False
        else:
            raise Refusal(400, f"there is no message type {str(kind)[:40]!r}", param="type")
        return True

    async def _configure(self, message: dict[str, Any]) -> None:
        if self._current is not None:
            raise Refusal(400, "session.config cannot come within an utterance; send input.done first", param="type")
        config, self._is_sglang = parse_config(message)
        catalog = await self._request.app[CATALOGS].get(self._request[CALL])
        self._speak_config = await config.to_speak_config(catalog, self._request.app[CONFIG].text_format)
        self._config = config
        if self._is_sglang:
            told = {name: getattr(config, name) for name in ("response_format", "stream_audio", "split_granularity")}
            await self._sender.send({"type": "session.configured", "session_id": self._session_id, **told})

    @property
    def _session_id(self) -> str:
        return self._request[CALL].request_id

    async def _add(self, text: Any) -> None:
        if not isinstance(text, str):
            raise Refusal(400, "text: a string is needed", param="text")
        if len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
            raise Refusal(
                413, f"text: more than {MAX_TEXT_BYTES} bytes in one message; send it in pieces", param="text"
            )
        for start in range(0, len(text), PIECE_CHARS):
            self._utterance().add(text[start : start + PIECE_CHARS])
            await self._turn.end()

    async def _commit(self) -> None:
        """SGLang-Omni's `input.commit`: it is answered once all text so far was spoken."""
        utterance = self._utterance()
        num_sentences = utterance.finish_sentence()
        message = {
            "type": "input.committed",
            "session_id": self._session_id,
            "segment_index": self._num_commits,
            "segment_sentences": num_sentences - self._committed_sentences,
            "total_sentences": num_sentences,
        }
        waits = utterance.commit(message)
        self._num_commits += 1
        self._committed_sentences = num_sentences
        if not waits:
            await self._sender.send(message)

    def _utterance(self) -> SocketUtterance:
        """The utterance that takes text; a new one if there is none."""
        if self._current is None:
            if self._request.app[DRAINING].is_set():
                raise Refusal(503, "this gateway is shutting down; connect again", code="draining")
            if len(self._utterances) >= MAX_UTTERANCES:
                raise Refusal(429, f"{MAX_UTTERANCES} utterances wait; send more when one is done", code="too_many")
            assert self._config is not None
            self._current = SocketUtterance(self._num_utterances, self._config, self._speak_config)
            self._num_utterances += 1
            self._utterances.append(self._current)
            self._idle.clear()
            self._new.set()
        return self._current

    async def _speak(self) -> None:
        """Speak one utterance after the other, because audio messages do not name their utterance."""
        app = self._request.app
        while True:
            await self._new.wait()
            utterance = self._utterances[0]
            try:
                await utterance.run(app[SERVERS], self._request[CALL], app[METRICS], self._sender.send)
            except ConnectionError:
                if self._request.transport is not None:
                    self._request.transport.abort()
                return
            self._utterances.popleft()
            if self._current is utterance:  # the server ended it, such as for want of text: more text begins another
                self._current = None
            if not self._utterances:
                self._new.clear()
                self._idle.set()
                if app[DRAINING].is_set():
                    await self.go_away()


speech_stream = conversing(_Conversation)
