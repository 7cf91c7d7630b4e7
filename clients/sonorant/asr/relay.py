"""Sends hypotheses to a `Speak` session: each segment of recognized speech is one utterance."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from sonorant.asr.commit import CommitPolicy, ReleasedWord
from sonorant.asr.draft import Draft, DraftChange
from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.words import ends_in_unspaced_script
from sonorant.client.events import Event
from sonorant.client.listening.playback_clock import PlaybackClock
from sonorant.client.speaking.session import Session
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.speak_pb2 import FlushDone, Revised
from sonorant.tts.v1.synthesis_pb2 import UtteranceDone

MAX_OPEN_UTTERANCES = 8  # recognition waits if it is further ahead of speech
# How long before the listener runs out of audio the next phrase is sent. It takes about that long to come.
AHEAD_S = 0.1
OnReleased: TypeAlias = Callable[[Sequence[ReleasedWord]], object]


class Relay:
    """`send` writes to the session, while another task reads its events and passes each to `take`."""

    def __init__(
        self,
        session: Session,
        policy: CommitPolicy,
        on_released: OnReleased = lambda _: None,
        on_sent: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_released` gets the words each time some are released; `on_sent` is called each time text is sent."""
        self._session = session
        self._policy = policy
        self._on_released = on_released
        self._on_sent = on_sent
        self._places = asyncio.Semaphore(MAX_OPEN_UTTERANCES)
        self._num_utterances = 0

    async def send(self, hypotheses: AsyncIterator[Hypothesis]) -> None:
        """Send all hypotheses, then finish the session. Words still waiting for a final hypothesis are not spoken."""
        utterance_id = ""
        async for hypothesis in hypotheses:
            words = self._policy.feed(hypothesis)
            if words:
                if not utterance_id:
                    await self._places.acquire()
                    self._num_utterances += 1
                    utterance_id = f"segment-{self._num_utterances}"
                self._on_released(words)
                self._on_sent()
                await self._session.send_text(_spaced(words), utterance_id)
            if hypothesis.is_final and utterance_id:
                await self._session.end(utterance_id)
                utterance_id = ""
        await self._session.finish()

    def take(self, event: Event) -> None:
        if isinstance(event.payload, UtteranceDone):
            self._places.release()


class RevisingRelay:
    """Like `Relay`, but speaks phrases when the listener is about to wait, and corrects them while nobody has heard
    them. It learns from the events how much audio the listener has."""

    def __init__(
        self,
        session: Session,
        draft: Draft,
        on_released: OnReleased = lambda _: None,
        on_sent: Callable[[], object] = lambda: None,
        clock: PlaybackClock | None = None,
    ) -> None:
        """`on_released` gets the words of each segment at its end; `on_sent` is called each time text is sent."""
        self._session = session
        self._draft = draft
        self._on_released = on_released
        self._on_sent = on_sent
        self._clock = clock or PlaybackClock()
        self._rate_hz = session.started.audio.sample_rate_hz
        self._places = asyncio.Semaphore(MAX_OPEN_UTTERANCES)
        self._num_utterances = self._num_flushes = 0
        self._current = ""  # the utterance of the current segment, once it has text
        self._revising = ""  # the utterance whose revision has no answer yet
        self._answers: asyncio.Queue[Revised | None] = asyncio.Queue()  # at most one; None: there will be none
        self._over: set[str] = set()  # utterances that have ended
        self._unspoken: set[tuple[str, int]] = set()  # utterances and flushes (0: the end) not yet spoken
        self._changed = asyncio.Event()
        self._nothing_to_say = True  # True = there is nothing to say until the next hypothesis

    async def send(self, hypotheses: AsyncIterator[Hypothesis]) -> None:
        """Send all hypotheses, then finish the session. If the last one was not final, it is spoken as it is."""
        next_hypothesis = self._read_next(hypotheses)
        last: Hypothesis | None = None
        try:
            while True:
                if not await self._wait_for_hypothesis(next_hypothesis):
                    await self._speak()
                    continue
                if (hypothesis := next_hypothesis.result()) is None:
                    break
                await self._apply(last := hypothesis)
                next_hypothesis = self._read_next(hypotheses)
        finally:
            next_hypothesis.cancel()
        if last is not None and not last.is_final:
            await self._apply(replace(last, is_final=True))
        await self._session.finish()

    def _read_next(self, hypotheses: AsyncIterator[Hypothesis]) -> "asyncio.Task[Hypothesis | None]":
        async def read() -> Hypothesis | None:
            return await anext(hypotheses, None)

        task = asyncio.create_task(read())
        task.add_done_callback(lambda _: self._changed.set())
        return task

    async def _wait_for_hypothesis(self, next_hypothesis: "asyncio.Task[Hypothesis | None]") -> bool:
        """Wait for the next hypothesis; return False if the listener runs out of audio first and settled words must be
        spoken."""
        while not next_hypothesis.done():
            if not self._nothing_to_say and self._listener_waits():
                self._nothing_to_say = True
                return False
            self._changed.clear()
            timeout_s = None if self._nothing_to_say or self._unspoken else self._clock.remaining_s() - AHEAD_S
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
        self._nothing_to_say = False
        return True

    def _listener_waits(self) -> bool:
        return not self._unspoken and self._clock.remaining_s() <= AHEAD_S

    async def _apply(self, hypothesis: Hypothesis) -> None:
        self._draft.feed(hypothesis)
        await self._speak()
        if hypothesis.is_final and self._current:
            await self._end()

    async def _speak(self) -> None:
        while (change := self._draft.change(listener_waits=self._listener_waits())) is not None:
            self._nothing_to_say = False
            if not self._current:
                await self._places.acquire()
                self._num_utterances += 1
                self._current = f"segment-{self._num_utterances}"
            await self._send(change, self._current)
            if self._draft.ends_phrase() and self._current not in self._over:
                self._num_flushes += 1
                self._unspoken.add((self._current, self._num_flushes))
                await self._session.flush(self._num_flushes, self._current)

    async def _end(self) -> None:
        if self._current not in self._over:
            self._unspoken.add((self._current, 0))
        await self._session.end(self._current)
        self._on_released(self._draft.finish())
        self._current = ""

    async def _send(self, change: DraftChange, utterance_id: str) -> None:
        if utterance_id in self._over:
            return
        self._on_sent()
        if change.appends:
            await self._session.send_text(change.text, utterance_id)
        else:
            self._revising = utterance_id
            await self._session.revise(change.from_char, change.text, utterance_id)
            if (answer := await self._answers.get()) is not None:
                self._draft.revised(change, answer.from_char, answer.text_char)

    def take(self, event: Event) -> None:
        match event.payload:
            case AudioChunk(num_samples=num_samples):
                self._clock.add("", num_samples / self._rate_hz)
            case FlushDone(flush_id=flush_id):
                self._unspoken.discard((event.utterance_id, flush_id))
            case Revised() as answer:
                self._unspoken -= {(event.utterance_id, flush_id) for flush_id in answer.flush_ids}
                self._revising = ""
                self._answers.put_nowait(answer)
            case UtteranceDone():
                self._done(event.utterance_id)
        self._changed.set()

    def _done(self, utterance_id: str) -> None:
        self._over.add(utterance_id)
        self._unspoken = {each for each in self._unspoken if each[0] != utterance_id}
        if utterance_id == self._revising:
            self._revising = ""
            self._answers.put_nowait(None)
        self._places.release()


def _spaced(words: Sequence[ReleasedWord]) -> str:
    """Join words, with the space after the last one instead of before the first: it tells the server that the last word
    is complete."""
    text = "".join(word.text for word in words).lstrip()
    return text if ends_in_unspaced_script(text) else text + " "
