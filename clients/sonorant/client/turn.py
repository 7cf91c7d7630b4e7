"""One turn of a voice agent: text goes in token by token; audio and words come out, and after a barge-in what was
heard.

A `Turn` is a `Speak` call with one utterance. A task of its own runs the call, so a framework may cancel the task that
reads from it: the call goes on until the server knows what was heard. `say`, `end` and `cut_off` never wait.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import grpc

from sonorant.client.client import SpeechClient
from sonorant.client.errors import SpeechError, from_status
from sonorant.client.events import ConnectionLost, Resumed
from sonorant.client.speaking.session import Session
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.synthesis_pb2 import (
    FINISH_REASON_COMPLETED,
    FINISH_REASON_FAILED,
    Marks,
    SynthesisConfig,
    UtteranceDone,
    Warning,
)

# How long a call that was cut off waits for the utterance's `done`.
CUT_OFF_TIMEOUT_S = 2.0
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the sent text, with the white space and punctuation before it: all words together are the text."""

    text: str
    start_s: float  # from the first sample of the turn
    end_s: float


@dataclass(frozen=True, slots=True)
class Heard:
    """What the listener had heard of a turn when it was cut off, in whole words."""

    text: str
    unheard: str  # the rest of what had been sent
    played_ms: int


Event: TypeAlias = AudioChunk | Word | Warning | ConnectionLost | Resumed


class Turn:
    """Call `say` with text and iterate over the events; the iteration ends with the speech, or raises its SpeechError.

    Events wait in memory until they are read; the server sends no more than `max_lead_ms` ahead of real time.
    """

    def __init__(
        self,
        client: SpeechClient,
        config: SynthesisConfig,
        *,
        max_lead_ms: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`timeout_s`: the turn fails if the server is silent for this long, when it is called or after the text. How
        long a server is looked for that is down or starts is a matter of the client's `Retry`."""
        self._speak = partial(client.speak, config, timestamps=True, max_lead_ms=max_lead_ms)
        self._target = client.target
        self._timeout_s = timeout_s
        self._text = ""
        self._words: list[Word] = []
        self._num_timed = 0  # code points of the text that are in `_words`
        self._to_send: asyncio.Queue[str | None] = asyncio.Queue()  # None: the end of the text
        self._events: asyncio.Queue[Event | SpeechError | None] = asyncio.Queue()  # None: the end of the speech
        self._cut_off: asyncio.Future[int] = asyncio.get_running_loop().create_future()  # its result: played ms
        self._task = asyncio.create_task(self._run())
        self._opened = False  # the server has answered
        self._is_lost = False  # the session looks for another server, and has a time limit of its own
        self._timer: asyncio.TimerHandle | None = None
        self.text_ended = False
        self.over = False  # True = no more events will come

    @property
    def text(self) -> str:
        """All text passed to `say`."""
        return self._text

    def say(self, text: str) -> None:
        """Append text exactly as it is. Text after `end`, or after the end of the turn, is dropped. Half of a surrogate
        pair, as of an emoji that a language model has cut in two, becomes U+FFFD, which is not said."""
        if not self.text_ended and not self.over:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            self._text += text
            self._to_send.put_nowait(text)

    def end(self) -> None:
        """End the text."""
        if not self.text_ended:
            self.text_ended = True
            self._to_send.put_nowait(None)
            self._restart_timer()

    def cut_off(self, played_ms: int) -> Heard:
        """Barge-in: the server stops at its next step, and the iteration ends at once."""
        if not self._cut_off.done():
            self._cut_off.set_result(played_ms)
        self._finish(None)
        if not self._opened:
            self._task.cancel()
        return self.heard(played_ms)

    def heard(self, played_ms: int) -> Heard:
        """Return the text up to the last word that was over after `played_ms` of audio; the server's estimate is the
        same."""
        end = sum(len(word.text) for word in self._words if word.end_s * 1000 <= played_ms)
        return Heard(self._text[:end], self._text[end:], played_ms)

    async def close(self) -> None:
        """Stop what is still being spoken, and wait until the call is over. After a barge-in call `cut_off` first: it
        tells the server what was heard."""
        if not self.over:
            self._finish(None)
            self._task.cancel()
        await asyncio.wait([self._task])

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)
            raise StopAsyncIteration
        if isinstance(event, SpeechError):
            raise event
        return event

    def _restart_timer(self) -> None:
        """Start the time limit again, unless the server is waiting for our text."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.over and not self._is_lost and self.text_ended and self._opened:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._time_out)

    def _time_out(self) -> None:
        message = f"nothing came from the server at {self._target} for {self._timeout_s:g} s"
        self._finish(SpeechError(grpc.StatusCode.DEADLINE_EXCEEDED, message))
        self._task.cancel()

    def _finish(self, error: SpeechError | None) -> None:
        if not self.over:
            self.over = True
            self._restart_timer()
            if error is None and self._cut_off.done():
                while not self._events.empty():  # these are not wanted any more
                    self._events.get_nowait()
            elif error is not None:
                self._events.put_nowait(error)
            self._events.put_nowait(None)

    async def _run(self) -> None:
        try:
            # Text that is already there goes with the call, which saves a round trip.
            text, is_all = self._take_waiting_text()
            session = self._speak(text=text, end=is_all)
            session.answer_timeout_s = self._timeout_s
            async with session:
                self._opened = True
                self._restart_timer()
                reading = asyncio.create_task(self._read(session))
                writing = asyncio.create_task(self._write(session))
                try:
                    await asyncio.wait((reading, self._cut_off), return_when=asyncio.FIRST_COMPLETED)
                    if not reading.done():
                        await self._cancel(session, reading)
                finally:
                    for task in (reading, writing):
                        task.cancel()
                    await asyncio.wait((reading, writing))
                if not reading.cancelled():
                    reading.result()
        except SpeechError as error:
            self._finish(error)
        finally:
            self._finish(None)

    async def _cancel(self, session: Session, reading: "asyncio.Task[None]") -> None:
        """Tell the server what was heard, and wait for `done`, so that its statistics are right."""
        try:
            async with asyncio.timeout(CUT_OFF_TIMEOUT_S):
                await session.cancel(played_ms=self._cut_off.result())
                await asyncio.wait((reading,))
        except (SpeechError, TimeoutError):
            pass  # leaving the call cancels everything, too

    def _take_waiting_text(self) -> tuple[str, bool]:
        """Take the text that waits to be sent; return it, and whether it is all of the text."""
        text, is_all = "", False
        while not (is_all or self._to_send.empty()):
            more = self._to_send.get_nowait()
            text, is_all = text + (more or ""), more is None
        return text, is_all

    async def _write(self, session: Session) -> None:
        try:
            while (text := await self._to_send.get()) is not None:
                await session.send_text(text)
            await session.end()
        except SpeechError:
            pass  # the reader gets the reason

    async def _read(self, session: Session) -> None:
        """Read to the end of the utterance, or of the call."""
        async for event in session:
            self._is_lost = isinstance(event.payload, ConnectionLost)
            self._restart_timer()
            match event.payload:
                case AudioChunk() | Warning() | ConnectionLost() | Resumed() as payload:
                    self._emit(payload)
                case Marks(marks=marks):
                    for mark in marks:
                        self._emit_word(mark.text_end, mark.start_ms / 1000, mark.end_ms / 1000)
                case UtteranceDone(reason=reason, error=error):
                    if reason == FINISH_REASON_FAILED:
                        raise from_status(error)
                    if reason == FINISH_REASON_COMPLETED and self._words:
                        # Characters after the last word.
                        self._emit_word(len(self._text), self._words[-1].end_s, self._words[-1].end_s)
                    self._finish(None)
                    await session.finish()

    def _emit_word(self, text_end: int, start_s: float, end_s: float) -> None:
        """Emit a word, together with all text before it that was not emitted yet."""
        if text := self._text[self._num_timed : text_end]:
            self._num_timed = text_end
            word = Word(text, start_s, end_s)
            self._words.append(word)
            self._emit(word)

    def _emit(self, event: Event) -> None:
        if not self.over:
            self._events.put_nowait(event)
