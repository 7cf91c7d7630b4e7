"""The messages of the WebSocket /v1/audio/speech/stream, in the dialects of vLLM-Omni and SGLang-Omni. Pure."""

from typing import Any, Literal

from pydantic import Field

from sonorant.client.configs import text_policy
from sonorant.gateway.errors import Refusal
from sonorant.gateway.openai.request import MaxLead, ResponseFormat, VoiceFields
from sonorant.gateway.openai.split import Granularity
from sonorant.gateway.upstream.catalog import Catalog
from sonorant.gateway.web.json_input import parse
from sonorant.tts.v1.speak_pb2 import SpeakConfig
from sonorant.tts.v1.synthesis_pb2 import TIMESTAMP_MODE_UNSPECIFIED, TIMESTAMP_MODE_WORD


class StreamConfig(VoiceFields):
    """`session.config`, the first message; it may come again between utterances."""

    response_format: ResponseFormat = Field(default="wav", description="Audio format; must be pcm with stream_audio.")
    stream_audio: bool = Field(default=False, description="Send audio as it is generated; else one file per text.")
    split_granularity: Granularity | None = Field(
        default=None,
        description="none: words are spoken as they come, without waiting for the end of anything, as one text. "
        "sentence, clause: each is a text of its own.",
    )
    word_timestamps: bool = Field(
        default=False,
        description="Send audio as audio.chunk messages, and all words after the last one.",
    )
    early_word_timestamps: bool = Field(
        default=False,
        description="With word_timestamps: send each word with the audio that it begins in. A Sonorant extension.",
    )
    max_lead_ms: MaxLead = 0
    commit: Literal["token", "sentence", "manual"] | None = Field(
        default=None,
        description="When text goes to the model: as it comes (the default), at ends of sentences, or only at "
        "input.commit and input.done. Only without splitting. A Sonorant extension.",
    )
    max_buffer_delay_ms: int | None = Field(
        default=None,
        ge=10,
        le=60_000,
        description="Speak all text to its end if none comes for this long; default: 300 after a sentence, else 2000. "
        "Only without splitting. A Sonorant extension.",
    )
    first_chunk_min_chars: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Begin to speak when there is so much text. Only without splitting. A Sonorant extension.",
    )

    def check(self) -> None:
        is_split = self.split_granularity not in (None, "none")
        policy = ("commit", "max_buffer_delay_ms", "first_chunk_min_chars")
        if is_split and any(getattr(self, name) is not None for name in policy):
            raise Refusal(400, f"{', '.join(policy)}: only without split_granularity", param="split_granularity")
        if (self.stream_audio or self.word_timestamps) and self.response_format != "pcm":
            raise Refusal(400, "response_format: stream_audio and word_timestamps need pcm", param="response_format")
        if self.word_timestamps and not self.stream_audio:
            raise Refusal(400, "word_timestamps: set stream_audio, too", param="word_timestamps")

    async def to_speak_config(self, catalog: Catalog, text_format: str) -> SpeakConfig:
        return SpeakConfig(
            synthesis=await self.to_config(catalog, "pcm_s16le", text_format),
            text_policy=text_policy(
                self.commit or "",
                max_buffer_delay_ms=self.max_buffer_delay_ms,
                first_chunk_min_chars=self.first_chunk_min_chars,
            ),
            timestamps=TIMESTAMP_MODE_WORD if self.word_timestamps else TIMESTAMP_MODE_UNSPECIFIED,
            max_lead_ms=self.max_lead_ms,
        )


def parse_config(message: dict[str, Any]) -> tuple[StreamConfig, bool]:
    """Parse `session.config`; also return whether it is SGLang-Omni's dialect, which nests the fields in `session`.
    Raises Refusal."""
    nested = isinstance(message.get("session"), dict)
    config = parse(StreamConfig, {**message, **message["session"]} if nested else message)
    config.check()
    if config.split_granularity is None:
        config = config.model_copy(update={"split_granularity": "sentence" if nested else "none"})
    return config, nested
