"""What the caller of a session can say; each is one request of the contract."""

from abc import ABC, abstractmethod

from sonorant.client.configs import utterance_config
from sonorant.tts.v1.speak_pb2 import (
    Cancel,
    EndUtterance,
    Flush,
    PlaybackReport,
    Revise,
    SpeakConfig,
    SpeakRequest,
    TextPolicy,
)
from sonorant.tts.v1.synthesis_pb2 import Scheduling, SynthesisConfig


class SessionVerbs(ABC):
    """Send text and controls from any task. `utterance_id=""` is the current utterance."""

    @abstractmethod
    async def send(self, request: SpeakRequest, config: SpeakConfig | None = None) -> None:
        """Send a request of the contract, but no config or `resume`; the methods below, in one."""

    @abstractmethod
    def use_config(self, config: SpeakConfig) -> None: ...

    def configure(
        self,
        config: SynthesisConfig | None = None,
        *,
        timestamps: bool = False,
        scheduling: Scheduling | None = None,
        text_policy: TextPolicy | None = None,
    ) -> None:
        """Set voice, language, speed, format, timestamps and so on for the utterances that are opened from now on. A
        config that the server cannot use ends the session."""
        self.use_config(utterance_config(config, timestamps=timestamps, scheduling=scheduling, text_policy=text_policy))

    async def send_text(self, text: str, utterance_id: str = "", config: SpeakConfig | None = None) -> None:
        """Append text to the utterance exactly as it is; it must contain the spaces between words, too. Text that
        would open more than 32 utterances waits until one is done, so read the events in another task.

        `config`: made by `utterance_config`; for the utterance that this text opens alone, in place of the session's.
        """
        if not isinstance(text, str):  # deltas of language models may be None, which would end the session
            raise TypeError(f"text is {text!r}, not a string")
        await self.send(SpeakRequest(utterance_id=utterance_id, text=text), config)

    async def revise(self, from_char: int, text: str, utterance_id: str = "") -> None:
        """Replace the utterance's text from `from_char` on. A `Revised` event says from where on it was really
        replaced: words whose audio was sent stay."""
        await self.send(SpeakRequest(utterance_id=utterance_id, revise=Revise(from_char=from_char, text=text)))

    async def flush(
        self, flush_id: int = 0, utterance_id: str = "", *, pause_ms: int = 0, carry_on: bool = False
    ) -> None:
        """Speak all text sent so far to its end, then be silent for `pause_ms`; the utterance stays open. `carry_on`:
        the model continues in the same manner afterwards, see `Flush` in the proto."""
        flush = Flush(flush_id=flush_id, pause_ms=pause_ms, carry_on=carry_on)
        await self.send(SpeakRequest(utterance_id=utterance_id, flush=flush))

    async def end(self, utterance_id: str = "") -> None:
        """End the utterance's text; the next text opens another utterance."""
        await self.send(SpeakRequest(utterance_id=utterance_id, end=EndUtterance()))

    async def cancel(self, utterance_id: str = "", played_ms: int | None = None) -> None:
        """Barge-in: drop all audio that was not sent yet. Nothing of the utterance follows but its `done`, at once,
        even while there is no server. ALL_UTTERANCES cancels every utterance of the session."""
        await self.send(SpeakRequest(utterance_id=utterance_id, cancel=Cancel(played_ms=played_ms)))

    async def report_playback(self, played_ms: int, utterance_id: str = "") -> None:
        """Tell the server how much the listener has really heard."""
        await self.send(SpeakRequest(utterance_id=utterance_id, playback=PlaybackReport(played_ms=played_ms)))
