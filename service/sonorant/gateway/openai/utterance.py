"""One utterance of the WebSocket: text from the first `input.text` to `input.done`, and what is heard of it.

It is one Speak call. With a granularity each sentence or clause is an utterance of that call, spoken one after the
other without a gap; without, words go to the model as they come.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from sonorant.gateway.encoders import AudioEncoder, encoder
from sonorant.gateway.errors import Refusal, from_status
from sonorant.gateway.metrics import GatewayMetrics
from sonorant.gateway.openai.speech import word_times
from sonorant.gateway.openai.split import Splitter
from sonorant.gateway.openai.stream_request import StreamConfig
from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.upstream.endings import told_at_end
from sonorant.gateway.upstream.servers import Servers
from sonorant.gateway.web.feed import Feed
from sonorant.gateway.web.json_text import head_of, with_audio
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.speak_pb2 import Cancel, EndUtterance, Flush, SpeakConfig, SpeakRequest
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_CANCELLED, Mark, UtteranceDone

DOOR = "stream"
SENTENCE_DELAY_S = 0.3  # as the server's own for text that is not split
MAX_SENTENCES = 16  # sent to the server and not done
MAX_CHARS = 256 * 1024
MAX_COMMITS = 1000  # without an answer yet
Send = Callable[[dict[str, Any] | bytes], Awaitable[None]]


class SocketUtterance:
    def __init__(self, index: int, config: StreamConfig, speak_config: SpeakConfig) -> None:
        self.index = index
        self._ended = False  # no more text will come
        self._config = config
        self._speak_config = speak_config
        self._splitter = None if config.split_granularity in (None, "none") else Splitter(config.split_granularity)
        self._feed = Feed()
        self._texts: list[str] = []  # the text of each sentence
        self._commits: deque[tuple[int, dict[str, Any]]] = deque()  # messages to send once that many sentences are done
        self._cancelled = False
        self._spoken: list[str] = []
        self._num_chars = 0
        self._num_sent = 0  # sentences sent to the server, if the text is split
        self._num_done = 0
        self._pause: asyncio.TimerHandle | None = None  # ends the current sentence if no more text comes

    def add(self, text: str) -> None:
        """Append text. Raises Refusal if the utterance gets too long."""
        self._num_chars += len(text)
        if self._num_chars > MAX_CHARS:
            raise Refusal(413, f"more than {MAX_CHARS} characters in one utterance; send input.done now and then")
        if self._splitter is not None:
            self._say(self._splitter.feed(text))
            self._finish_sentence_later()
            return
        if not self._texts:
            self._texts.append("")
        self._texts[0] += text
        self._feed.put(SpeakRequest(utterance_id="0", text=text))

    def _finish_sentence_later(self) -> None:
        """Speak a sentence that has its mark, but no blank behind it yet, if no more text comes for a while."""
        assert self._splitter is not None, "the text is split"
        if self._pause is not None:
            self._pause.cancel()
        self._pause = None
        if self._splitter.holds_sentence:
            self._pause = asyncio.get_running_loop().call_later(SENTENCE_DELAY_S, self._finish_in_pause)

    def _finish_in_pause(self) -> None:
        if not self._ended:
            self.finish_sentence()

    def finish_sentence(self) -> int:
        """End the current sentence; return how many sentences there are now."""
        if self._splitter is not None:
            self._say(self._splitter.rest())
        return len(self._texts)

    def commit(self, message: dict[str, Any]) -> bool:
        """Send the message once all text so far was spoken; return False if it was spoken already. Raises Refusal."""
        if self._num_done >= len(self._texts):
            return False
        if len(self._commits) >= MAX_COMMITS:
            raise Refusal(429, f"{MAX_COMMITS} commits wait; send more when some were answered", code="too_many")
        if self._splitter is None:
            self._feed.put(SpeakRequest(utterance_id="0", flush=Flush(flush_id=len(self._commits) + 1)))
        self._commits.append((len(self._texts), message))
        return True

    def end(self) -> None:
        self.finish_sentence()
        self._ended = True
        if self._splitter is None and self._texts:
            self._feed.put(SpeakRequest(utterance_id="0", end=EndUtterance()))
        self._finish_if_over()

    def cancel(self, played_ms: int | None) -> None:
        if self._cancelled:
            return
        self._ended = self._cancelled = True
        self._feed.put(SpeakRequest(utterance_id="*", cancel=Cancel(played_ms=played_ms)))
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        """End the call's requests once the utterance is over; not earlier, because a cancel could not be sent then."""
        num_expected = self._num_sent if self._cancelled and self._splitter else len(self._texts)
        if self._ended and self._num_done >= num_expected:
            self._feed.end()

    def _say(self, sentences: list[str]) -> None:
        self._texts += sentences
        self._send_sentences()

    def _send_sentences(self) -> None:
        """Send as many sentences as the server takes at once."""
        while self._num_sent < len(self._texts) and self._num_sent - self._num_done < MAX_SENTENCES:
            sentence_id = str(self._num_sent)
            self._feed.put(SpeakRequest(utterance_id=sentence_id, text=self._texts[self._num_sent]))
            self._feed.put(SpeakRequest(utterance_id=sentence_id, end=EndUtterance()))
            self._num_sent += 1

    async def run(self, servers: Servers, call: UpstreamCall, metrics: GatewayMetrics, send: Send) -> None:
        """Speak to the end and send all messages, `session.done` and errors included. Raises ConnectionError."""
        failed = False
        try:
            await self._speak(servers, call, metrics, send)
        except Refusal as refusal:
            failed = True
            await send(error_message(refusal))
        closing: dict[str, Any] = {
            "type": "session.done",
            "utterance_index": self.index,
            "total_sentences": len(self._texts),
        }
        if failed:
            closing["error"] = True
        if self._cancelled:
            closing |= {"cancelled": True, "spoken_text": " ".join(filter(None, self._spoken))}
        await send(closing)

    async def _speak(self, servers: Servers, call: UpstreamCall, metrics: GatewayMetrics, send: Send) -> None:
        speaking = await servers.speak(self._speak_config, call, self._feed.take_first())
        self._feed.start(speaking)
        sentence: Sentence | None = None
        try:
            with metrics.speaking(DOOR) as spoken:
                while (response := await speaking.read()) is not None:
                    kind = response.WhichOneof("payload")
                    if kind in ("started", "audio", "marks", "done") and sentence is None:
                        index = int(response.utterance_id)
                        sentence = Sentence(self.index, index, self._texts[index], self._config, call, send)
                    match kind:
                        case "started" if sentence is not None:
                            await sentence.begin()
                        case "audio" if sentence is not None:
                            spoken.audio(len(response.audio.data))
                            await sentence.audio(response.audio)
                        case "marks" if sentence is not None:
                            sentence.marks.extend(response.marks.marks)
                        case "flush_done":
                            await self._tell_commit(send)
                        case "done" if sentence is not None:
                            await sentence.end(response.done)
                            if response.done.reason == FINISH_REASON_CANCELLED:
                                self._spoken.append(self._text_of(sentence)[: response.done.stats.spoken_chars])
                            else:
                                self._spoken.append(self._text_of(sentence))
                            sentence = None
                            self._num_done += 1
                            await self._next_sentence(send)
                            self._finish_if_over()
        finally:
            speaking.close()
            await self._feed.stop()

    async def _next_sentence(self, send: Send) -> None:
        if self._splitter is None or self._cancelled:
            return
        while self._commits and self._commits[0][0] <= self._num_done:
            await self._tell_commit(send)
        self._send_sentences()

    def _text_of(self, sentence: "Sentence") -> str:
        return self._texts[sentence.index]

    async def _tell_commit(self, send: Send) -> None:
        _, message = self._commits.popleft()
        await send(message)


class Sentence:
    """The messages about one text, from `audio.start` to `audio.done`."""

    def __init__(
        self, utterance_index: int, index: int, text: str, config: StreamConfig, call: UpstreamCall, send: Send
    ) -> None:
        self.index = index
        self.marks: list[Mark] = []  # not sent yet
        self._ids = {"utterance_index": utterance_index, "sentence_index": index}
        self._text = text
        self._config = config
        self._call = call
        self._send = send
        self._encode: AudioEncoder = encoder(config.response_format, config.rate_hz, whole=not config.stream_audio)
        self._file = bytearray()  # the audio, if it is sent as one file
        self._num_chunks = 0
        self._num_bytes = 0
        self._begun = False

    async def begin(self) -> None:
        config = self._config
        message = {"type": "audio.start", **self._ids, "sentence_text": self._text, "format": config.response_format}
        if config.word_timestamps:
            message["word_timestamps"] = True
        await self._send({**message, "sample_rate": config.rate_hz})
        self._begun = True

    async def audio(self, chunk: AudioChunk) -> None:
        data = await self._encode.encode(chunk.data)
        if self._config.stream_audio:
            await self._write(data)
        else:
            self._file += data

    async def end(self, done: UtteranceDone) -> None:
        cancelled = done.reason == FINISH_REASON_CANCELLED
        failed = done.HasField("error")
        if failed:
            await self._send({**error_message(from_status(done.error)), "partial_audio": self._num_bytes > 0})
        if not self._begun:
            if cancelled or failed:
                return
            await self.begin()
        if not (cancelled or failed):
            self._file += await self._encode.finish()
            await self._write(bytes(self._file))
            if self.marks:
                await self._send_chunk(b"", 0, self.marks)
        message = {"type": "audio.done", **self._ids, "total_bytes": self._num_bytes, "error": failed}
        message |= told_at_end(done, self._call)
        if cancelled:
            message |= {"cancelled": True, "spoken_chars": done.stats.spoken_chars}
        await self._send(message)

    async def _write(self, data: bytes) -> None:
        if not data:
            return
        begin = self._num_bytes
        self._num_bytes += len(data)
        if not self._config.word_timestamps:
            await self._send(data)
            return
        words: list[Mark] | None = None
        if self._config.early_word_timestamps:
            words = [mark for mark in self.marks if mark.start_ms < self._ms(self._num_bytes)]
            del self.marks[: len(words)]
        await self._send_chunk(data, self._ms(begin), words)

    async def _send_chunk(self, data: bytes, begin_ms: int, words: list[Mark] | None) -> None:
        """Send audio with its words; None = the words come later."""
        message = {
            "type": "audio.chunk",
            **self._ids,
            "chunk_id": self._num_chunks,
            "chunk_start_ms": begin_ms,
            "chunk_end_ms": self._ms(self._num_bytes),
            "sample_rate": self._config.rate_hz,
            "timestamps": None if words is None else word_times(words),
        }
        self._num_chunks += 1
        await self._send(with_audio(head_of(message, "audio_b64"), data))

    def _ms(self, num_bytes: int) -> int:
        return num_bytes // 2 * 1000 // self._config.rate_hz


def error_message(refusal: Refusal) -> dict[str, Any]:
    return {"type": "error", "message": refusal.message, "code": refusal.code, "param": refusal.param}
