"""From hypotheses to a `Speak` session: each segment of recognized speech is one utterance. Knows no recognizer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from sonorant.asr.commit import CommitPolicy, ReleasedWord
from sonorant.asr.hypotheses import Hypothesis
from sonorant.asr.words import ends_in_unspaced_script
from sonorant.client.session import Session

MAX_OPEN_UTTERANCES = 8  # recognition that runs ahead of speech waits


class Relay:
    """`send` writes, while another task reads the session's events and tells each `UtteranceDone` to `done`."""

    def __init__(
        self, session: Session, policy: CommitPolicy, on_released: Callable[[Sequence[ReleasedWord]], object]
    ) -> None:
        self._session = session
        self._policy = policy
        self._on_released = on_released
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
                await self._session.send_text(_spaced(words), utterance_id)
            if hypothesis.is_final and utterance_id:
                await self._session.end(utterance_id)
                utterance_id = ""
        await self._session.finish()

    def done(self) -> None:
        self._places.release()


def _spaced(words: Sequence[ReleasedWord]) -> str:
    """With the space after the last word instead of before the first: it tells the server that the word is whole."""
    text = "".join(word.text for word in words).lstrip()
    return text if ends_in_unspaced_script(text) else text + " "
