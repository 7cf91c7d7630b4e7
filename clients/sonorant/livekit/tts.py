"""A TTS plugin for LiveKit. It sends tokens to the server as they come and returns audio and timed words. Closing a
stream stops the server at its next step.

    session = AgentSession(tts=TTS(target="127.0.0.1:50051", voice="aiden"), use_tts_aligned_transcript=True, ...)

    @tts.on("speech_interrupted")
    def on_speech_interrupted(heard: Heard) -> None:
        print(f"heard: {heard.text!r}, not heard: {heard.unheard!r}")
"""

import asyncio
from contextlib import suppress
from typing import Any, Literal

from livekit.agents import APIConnectOptions, tts, utils
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, TimedString
from sonorant.client.access import Access
from sonorant.client.client import DEFAULT_TARGET, SpeechClient
from sonorant.client.errors import SpeechError
from sonorant.client.listening.playback_clock import PlaybackClock
from sonorant.client.turn import Turn, Word
from sonorant.livekit.errors import api_error
from sonorant.tts.v1.audio_pb2 import AUDIO_ENCODING_PCM_S16LE, AudioChunk
from sonorant.tts.v1.synthesis_pb2 import SynthesisConfig

_SILENCE_S = 0.02  # sent if a text has nothing to speak: LiveKit treats a stream without audio as a failure


class TTS(tts.TTS[Literal["speech_interrupted"]]):  # type: ignore[misc]
    """Each stream is one call to the server.

    Emits `speech_interrupted` with a `Heard` when a stream is closed before its end.
    """

    def __init__(
        self,
        *,
        target: str = DEFAULT_TARGET,
        access: Access | None = None,
        voice: str = "",
        config: SynthesisConfig | None = None,
        max_lead_ms: int | None = None,
        sample_rate: int = 24_000,
    ) -> None:
        """`config`: further settings, such as the language, made by `sonorant.client.synthesis_config`. `max_lead_ms`:
        how far the server may be ahead of the listener; None = the server's default. `sample_rate`: 8,000, 16,000,
        22,050, 24,000, 44,100 or 48,000."""
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=True),
            sample_rate=sample_rate,
            num_channels=1,
        )
        self._target = target
        self._access = access
        self._max_lead_ms = max_lead_ms
        self._config = SynthesisConfig()
        if config is not None:
            self._config.CopyFrom(config)
        self._config.audio.encoding = AUDIO_ENCODING_PCM_S16LE
        self._config.audio.sample_rate_hz = sample_rate
        self._client: SpeechClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # background work that no stream waits for
        self.update_options(voice=voice)

    @property
    def provider(self) -> str:
        return "Sonorant"

    def update_options(
        self, *, voice: str = "", language: str = "", instructions: str = "", speed: float = 0.0
    ) -> None:
        """Change the settings of future streams; an argument that is left out changes nothing."""
        if voice:
            self._config.voice.voice_id = voice
        if language:
            self._config.language = language
        if instructions:
            self._config.instructions = instructions
        if speed:
            self._config.speed = speed

    def prewarm(self) -> None:
        """Connect now, so that the first stream need not wait for it."""

        async def connect() -> None:
            with suppress(SpeechError):
                await self.client.health()

        self.in_background(connect())

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        return ChunkedStream(self, text, conn_options)

    def stream(self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS) -> "SynthesizeStream":
        return SynthesizeStream(self, conn_options)

    async def aclose(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # Used by the streams.

    @property
    def client(self) -> SpeechClient:
        """The client, created at its first use, when there is an event loop."""
        if self._client is None:
            self._client = SpeechClient(self._target, self._access)
        return self._client

    def begin_turn(self, timeout_s: float) -> Turn:
        config = SynthesisConfig()
        config.CopyFrom(self._config)
        return Turn(self.client, config, max_lead_ms=self._max_lead_ms, timeout_s=timeout_s)

    def in_background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class SynthesizeStream(tts.SynthesizeStream):  # type: ignore[misc]
    """Speaks text that comes token by token, as one segment."""

    def __init__(self, speech: TTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=speech, conn_options=conn_options)
        self._speech = speech

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        request_id = _initialize(output_emitter, self._speech, stream=True)
        first_text = await self._next_text()
        if first_text is None:
            return
        output_emitter.start_segment(segment_id=request_id)
        self._mark_started()
        turn = self._speech.begin_turn(self._conn_options.timeout)
        turn.say(first_text)
        forwarding = asyncio.create_task(self._forward_text(turn))
        try:
            await _forward_speech(turn, output_emitter, self._speech, request_id)
        finally:
            forwarding.cancel()
        output_emitter.end_segment()

    async def _next_text(self) -> str | None:
        """The next text, or None at the end of the segment."""
        async for item in self._input_ch:
            return item if isinstance(item, str) else None
        return None

    async def _forward_text(self, turn: Turn) -> None:
        while (text := await self._next_text()) is not None:
            turn.say(text)
        turn.end()


class ChunkedStream(tts.ChunkedStream):  # type: ignore[misc]
    """Speaks a text that is known as a whole."""

    def __init__(self, speech: TTS, text: str, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=speech, input_text=text, conn_options=conn_options)
        self._speech = speech

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        request_id = _initialize(output_emitter, self._speech, stream=False)
        if not self._input_text:
            return
        turn = self._speech.begin_turn(self._conn_options.timeout)
        turn.say(self._input_text)
        turn.end()
        await _forward_speech(turn, output_emitter, self._speech, request_id)


def _initialize(output_emitter: tts.AudioEmitter, speech: TTS, *, stream: bool) -> str:
    """Initialize the emitter; return the id of the request."""
    request_id = str(utils.shortuuid())
    output_emitter.initialize(
        request_id=request_id, sample_rate=speech.sample_rate, num_channels=1, mime_type="audio/pcm", stream=stream
    )
    return request_id


async def _forward_speech(turn: Turn, output_emitter: tts.AudioEmitter, speech: TTS, request_id: str) -> None:
    """Forward audio and words to the end of the turn. If cancelled, cut the turn off."""
    playback = PlaybackClock()
    has_audio = False
    try:
        async for event in turn:
            match event:
                case AudioChunk() as audio if audio.data:
                    has_audio = True
                    output_emitter.push(audio.data)
                    playback.add(request_id, len(audio.data) / 2 / speech.sample_rate)
                case Word() as word:
                    output_emitter.push_timed_transcript(TimedString(word.text, word.start_s, word.end_s))
        if not has_audio:
            output_emitter.push(bytes(2 * round(_SILENCE_S * speech.sample_rate)))
    except SpeechError as error:
        raise api_error(error, request_id) from error
    except asyncio.CancelledError:
        speech.emit("speech_interrupted", turn.cut_off(playback.played_ms(request_id)))
        raise
    finally:
        speech.in_background(turn.close())
