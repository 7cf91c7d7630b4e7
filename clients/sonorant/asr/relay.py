"""From hypotheses to a `Speak` session: each segment of recognized speech is one utterance. Knows no recognizer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias

from sonorant.asr.commit import CommitPolicy, ReleasedWord
from sonorant.asr.draft import Change, Draft
from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.words import ends_in_unspaced_script
from sonorant.client.session import Session
from sonorant.tts.v1.speak_pb2 import Revised

MAX_OPEN_UTTERANCES = 8  # recognition that runs ahead of speech waits
OnReleased: TypeAlias = Callable[[Sequence[ReleasedWord]], object]


class Relay:
    """`send` writes, while another task reads the session's events and tells each `UtteranceDone` to `done`."""

    def __init__(
        self, session: Session, policy: CommitPolicy, on_released: OnReleased, on_sent: Callable[[], object]
    ) -> None:
        """`on_sent` is told each time that text goes out."""
        self._session = session
        self._policy = policy
        self._on_released = on_released
        self._on_sent = on_sent
        self._places = asyncio.Semaphore(MAX_OPEN_UTTERANCES)
        self._num_utterances = 0

    async def send(self, hypotheses: AsyncIterator[Hypothesis]) -> None:
        """All of them, and the end of the session; what no final hypothesis came for is not spoken."""
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

    def done(self, utterance_id: str) -> None:
        self._places.release()


class RevisingRelay:
    """The same with a text that is corrected while nobody has heard it; another task tells each `Revised`, too."""

    def __init__(self, session: Session, draft: Draft, on_released: OnReleased, on_sent: Callable[[], object]) -> None:
        """`on_released` is told what was spoken of each segment in the end, `on_sent` that some text goes out."""
        self._session = session
        self._draft = draft
        self._on_released = on_released
        self._on_sent = on_sent
        self._places = asyncio.Semaphore(MAX_OPEN_UTTERANCES)
        self._num_utterances = 0
        self._asked = ""  # the utterance whose revision has no answer yet
        self._answers: asyncio.Queue[Revised | None] = asyncio.Queue()  # at most one; None: there will be none
        self._over: set[str] = set()  # ended before their text did

    async def send(self, hypotheses: AsyncIterator[Hypothesis]) -> None:
        """All of them, and the end of the session; what no final hypothesis came for is spoken as it was last."""
        utterance_id = ""
        async for hypothesis in hypotheses:
            while (change := self._draft.feed(hypothesis)) is not None:
                if not utterance_id:
                    await self._places.acquire()
                    self._num_utterances += 1
                    utterance_id = f"segment-{self._num_utterances}"
                await self._send(change, utterance_id)
                if not hypothesis.is_final and self._draft.ends_phrase() and utterance_id not in self._over:
                    await self._session.flush(utterance_id=utterance_id)
            if hypothesis.is_final and utterance_id:
                await self._session.end(utterance_id)
                self._on_released(self._draft.finish(hypothesis))
                utterance_id = ""
        await self._session.finish()

    async def _send(self, change: Change, utterance_id: str) -> None:
        if utterance_id in self._over:
            return
        self._on_sent()
        if change.appends:
            await self._session.send_text(change.text, utterance_id)
        else:
            self._asked = utterance_id
            await self._session.revise(change.from_char, change.text, utterance_id)
            if (answer := await self._answers.get()) is not None:
                self._draft.revised(change, answer.from_char, answer.text_char)

    def revised(self, answer: Revised) -> None:
        self._asked = ""
        self._answers.put_nowait(answer)

    def done(self, utterance_id: str) -> None:
        self._over.add(utterance_id)
        if utterance_id == self._asked:
            self._asked = ""
            self._answers.put_nowait(None)
        self._places.release()


def _spaced(words: Sequence[ReleasedWord]) -> str:
    """With the space after the last word instead of before the first: it tells the server that the word is whole."""
    text = "".join(word.text for word in words).lstrip()
    return text if ends_in_unspaced_script(text) else text + " "
