"""A TTS service for Pipecat. It sends tokens to the server as they come and returns audio and timed words. An
interruption stops the server at its next step.

    tts = SonorantTTSService(target="127.0.0.1:50051", settings=SonorantTTSService.Settings(voice="aiden"))

    @tts.event_handler("on_speech_interrupted")
    async def on_speech_interrupted(service, context_id, heard):
        print(f"heard: {heard.text!r}, not heard: {heard.unheard!r}")
"""

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    CancelFrame,
    EndFrame,
    Frame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessorSetup
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.transcriptions.language import Language
from pipecat.utils.errors import ErrorCategory
from pipecat.utils.types import NOT_GIVEN, NotGiven
from sonorant.client.access import Access
from sonorant.client.client import DEFAULT_TARGET, SpeechClient
from sonorant.client.errors import SpeechError
from sonorant.client.listening.playback_clock import PlaybackClock
from sonorant.client.turn import Turn, Word
from sonorant.pipecat.errors import category
from sonorant.tts.v1.audio_pb2 import AUDIO_ENCODING_PCM_S16LE, AudioChunk
from sonorant.tts.v1.synthesis_pb2 import SynthesisConfig

# A turn ends by itself, with the server's `done` or a time-out after its text. Before the end of its text, it waits for
# the language model, which may be busy with a tool.
_CONTEXT_TIMEOUT_S = 120.0
_SILENCE_S = 0.02  # sent if a text has nothing to speak: Pipecat gives up a service that sends no audio


@dataclass
class SonorantTTSSettings(TTSSettings):  # type: ignore[misc]
    """Settings that may change between turns; the others are in the service's `config`.

    Parameters:
        instructions: Style in plain language, for checkpoints that follow it.
        speed: 0.5 to 2, at the same pitch.
    """

    instructions: str | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    speed: float | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)


class SonorantTTSService(TTSService):  # type: ignore[misc]
    """Each audio context of Pipecat is one call to the server, so if one fails, the others go on.

    Event handlers, besides Pipecat's own:
        on_speech_interrupted: gets the context id and a `Heard` with what the listener had heard by then.
    """

    Settings = SonorantTTSSettings
    _settings: SonorantTTSSettings

    def __init__(
        self,
        *,
        target: str = DEFAULT_TARGET,
        access: Access | None = None,
        config: SynthesisConfig | None = None,
        max_lead_ms: int | None = None,
        sample_rate: int | None = None,
        settings: SonorantTTSSettings | None = None,
        **kwargs: Any,
    ) -> None:
        """`config`: made by `sonorant.client.synthesis_config`; `settings` override it. `max_lead_ms`: how far the
        server may be ahead of the listener; None = the server's default. The audio is 16-bit mono at `sample_rate`, or
        at the pipeline's rate; the server supports 8,000, 16,000, 22,050, 24,000, 44,100 and 48,000 Hz."""
        self._config = config or SynthesisConfig()
        stored = SonorantTTSSettings(
            model=None,
            voice=self._config.voice.voice_id or None,
            language=self._config.language or None,
            instructions=self._config.instructions or None,
            speed=self._config.speed if self._config.HasField("speed") else None,
        )
        if settings is not None:
            stored.apply_update(settings)
        kwargs.setdefault("text_aggregation_mode", TextAggregationMode.TOKEN)
        super().__init__(
            push_text_frames=False,
            push_start_frame=True,
            append_trailing_space=True,  # only with sentence aggregation; tokens stay as they are
            stop_frame_timeout_s=_CONTEXT_TIMEOUT_S,
            sample_rate=sample_rate,
            settings=stored,
            **kwargs,
        )
        self._target = target
        self._access = access
        self._max_lead_ms = max_lead_ms
        self._client: SpeechClient | None = None
        self._turns: dict[str, Turn] = {}  # by context
        self._playback = PlaybackClock()
        self._register_event_handler("on_speech_interrupted")

    @property
    def supports_processing_metrics(self) -> bool:
        return False

    def can_generate_metrics(self) -> bool:
        return True

    def language_to_service_language(self, language: Language) -> str | None:
        """The language's BCP-47 tag; the server checks whether its checkpoint speaks it."""
        return str(language.value)

    async def setup(self, setup: FrameProcessorSetup) -> None:
        await super().setup(setup)
        self._client = SpeechClient(self._target, self._access)
        self.create_task(self._connect(self._client))

    async def stop(self, frame: EndFrame) -> None:
        await super().stop(frame)
        await self._close_turns()

    async def cancel(self, frame: CancelFrame) -> None:
        await super().cancel(frame)
        await self._close_turns()

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._close_turns()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if isinstance(frame, BotStartedSpeakingFrame):
            self._playback.playback_started()
        await super().process_frame(frame, direction)

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        if isinstance(frame, TTSAudioRawFrame) and frame.context_id:
            self._playback.add(frame.context_id, frame.num_frames / frame.sample_rate)
        await super().push_frame(frame, direction)

    async def _push_sequencer_frames(self, frames: list[Frame], context_id: str | None) -> None:
        """With words among them, which came before Pipecat knew their sentence, send them at once: it would queue them
        behind words that came later, and a transport sends first what it has taken first."""
        if not any(isinstance(frame, TTSTextFrame) for frame in frames):
            await super()._push_sequencer_frames(frames, context_id)
            return
        for frame in frames:
            await self.push_frame(frame)

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Send text to the context's turn. Its audio comes from `_receive`."""
        turn = self._turns.get(context_id)
        if turn is None:
            if self._client is None:  # text that comes after the end of the pipeline
                yield None
                return
            turn = Turn(self._client, self._speech_config(), max_lead_ms=self._max_lead_ms)
            self._turns[context_id] = turn
            self.create_task(self._receive(turn, context_id))
        turn.say(text)
        await self.start_tts_usage_metrics(text)
        yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        """End the turn's text."""
        context_id = context_id or self.get_active_audio_context_id()
        if context_id is not None and (turn := self._turns.get(context_id)) is not None:
            turn.end()
            if turn.over:
                await self._close_context(context_id)

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        await self.stop_all_metrics()
        played_ms = self._playback.played_ms(context_id)
        if (turn := self._turns.get(context_id)) is not None:
            heard = turn.cut_off(played_ms)
            await self._call_event_handler("on_speech_interrupted", context_id, heard)
        self._forget(context_id)
        self._playback.drop()
        await super().on_audio_context_interrupted(context_id)

    async def on_audio_context_completed(self, context_id: str) -> None:
        self._forget(context_id)
        await super().on_audio_context_completed(context_id)

    def _speech_config(self) -> SynthesisConfig:
        config = SynthesisConfig()
        config.CopyFrom(self._config)
        config.audio.encoding = AUDIO_ENCODING_PCM_S16LE
        config.audio.sample_rate_hz = self.sample_rate
        if self._settings.voice:
            config.voice.voice_id = self._settings.voice
        config.language = self._settings.language or ""
        config.instructions = self._settings.instructions or ""
        if self._settings.speed:
            config.speed = self._settings.speed
        return config

    async def _receive(self, turn: Turn, context_id: str) -> None:
        """Pass audio and words from the server to Pipecat's audio context."""
        has_audio, first_word, heard_s = False, True, 0.0
        try:
            async for event in turn:
                match event:
                    case AudioChunk() as audio if audio.data:
                        has_audio = True
                        await self._append_audio(audio.data, context_id)
                    case Word() as word if spoken := word.text.strip():
                        # A word without white space before it is joined to the one before, as in Chinese.
                        joined = not first_word and not word.text[0].isspace()
                        first_word = False
                        # The clock takes back some of the delay when playback is reported, and Pipecat sorts by time.
                        heard_s = max(heard_s, word.start_s + self._playback.late_s(context_id))
                        await self.add_word_timestamps([(spoken, heard_s)], context_id, joined or None)
            if not has_audio and self.audio_context_available(context_id):
                await self._append_audio(bytes(2 * round(_SILENCE_S * self.sample_rate)), context_id)
        except SpeechError as error:
            await self.stop_ttfb_metrics()
            await self.push_error(error_msg=f"{self}: {error}", exception=error)
        if turn.text_ended:
            await self._close_context(context_id)

    async def _append_audio(self, data: bytes, context_id: str) -> None:
        await self.append_to_audio_context(
            context_id, TTSAudioRawFrame(data, self.sample_rate, 1, context_id=context_id)
        )

    async def _close_context(self, context_id: str) -> None:
        if self.audio_context_available(context_id):
            await self.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
            await self.remove_audio_context(context_id)

    def _forget(self, context_id: str) -> None:
        self._turns.pop(context_id, None)
        self._playback.forget(context_id)

    def _classify_error(self, exception: Exception) -> ErrorCategory | None:
        return category(exception) if isinstance(exception, SpeechError) else super()._classify_error(exception)

    async def _connect(self, client: SpeechClient) -> None:
        """Connect now, so that the first turn need not wait for it. Errors are ignored here: the first turn reports
        them."""
        with suppress(SpeechError):
            await client.health()

    async def _close_turns(self) -> None:
        """Cut off all turns and close the client."""
        turns, self._turns = self._turns, {}
        for context_id, turn in turns.items():
            turn.cut_off(self._playback.played_ms(context_id))
        for turn in turns.values():
            await turn.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
