"""The requests of Cartesia's clients, and their translation for the server. Unknown fields are ignored. Pure."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sonorant.client import synthesis_config
from sonorant.gateway.errors import Refusal
from sonorant.gateway.upstream.catalog import Catalog
from sonorant.gateway.upstream.voices import resolve_voice
from sonorant.gateway.web.json_input import MAX_EMBEDDING, MAX_NAME_CHARS, MAX_TEXT_CHARS, MAX_UINT32, TextFields
from sonorant.tts.v1.speak_pb2 import SpeakConfig, TextPolicy
from sonorant.tts.v1.synthesis_pb2 import TIMESTAMP_MODE_UNSPECIFIED, TIMESTAMP_MODE_WORD, SynthesisConfig

LEAST_BUFFER_MS = 10  # the server's minimum; 0 means "do not wait" in Cartesia's protocol
MOST_BUFFER_MS = 60_000
_ENCODINGS = {"pcm_s16le": "pcm_s16le", "pcm_f32le": "pcm_s16le", "pcm_mulaw": "mulaw", "pcm_alaw": "alaw"}


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, protected_namespaces=())


def _voice(value: Any) -> Any:
    """Accept an id alone as a voice, too."""
    return {"id": value} if isinstance(value, str) else value


class Voice(_Message):
    mode: Literal["id", "embedding"] = "id"
    id: str | None = Field(
        default=None, max_length=MAX_NAME_CHARS, description="A voice of GET /v1/audio/voices, or `default`."
    )
    embedding: Annotated[list[float], Field(fail_fast=True)] | None = Field(default=None, max_length=MAX_EMBEDDING)


class OutputFormat(_Message):
    container: Literal["raw", "wav", "mp3"] = "raw"
    encoding: Literal["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"] = "pcm_s16le"
    sample_rate: int = Field(default=24_000, ge=1, le=MAX_UINT32)


class GenerationConfig(_Message):
    speed: float | None = None


class Generation(_Message, TextFields):
    """The body of POST /tts/bytes."""

    transcript: str = Field(default="", max_length=MAX_TEXT_CHARS)
    voice: Annotated[Voice, BeforeValidator(_voice)] = Voice()
    output_format: OutputFormat = OutputFormat()
    language: str | None = Field(default=None, max_length=MAX_NAME_CHARS)
    locale: str | None = Field(default=None, max_length=MAX_NAME_CHARS, description="Another name of `language`.")
    generation_config: GenerationConfig | None = Field(default=None, description="Only its `speed` is used.")
    pronunciation_dict_id: str | None = Field(
        default=None,
        max_length=MAX_NAME_CHARS,
        pattern="^[^@]*$",
        description="One of /v1/audio/dictionaries, in its newest version.",
    )

    def check_text(self) -> None:
        """Raise Refusal if the text is empty."""
        if not self.transcript.strip():
            raise Refusal(400, "transcript: nothing to say; send a text", param="transcript")

    def to_config(self, catalog: Catalog, text_format: str) -> SynthesisConfig:
        """Translate the fields for the server. `text_format`: the door's own. Raises Refusal."""
        output, controls = self.output_format, self.generation_config
        config = synthesis_config(
            voice=resolve_voice(self.voice.id or "", catalog.presets),
            language=(self.language or self.locale or "").lower(),
            encoding=_ENCODINGS[output.encoding],
            sample_rate_hz=output.sample_rate,
            speed=controls.speed if controls and controls.speed != 1 else None,
            text_format=self.text_format or text_format,
            leave_out=self.leave_out,
            directions=self.directions,
            dictionaries=[*self.dictionaries, *([self.pronunciation_dict_id] if self.pronunciation_dict_id else [])],
        )
        if self.voice.mode == "embedding":
            if not self.voice.embedding:
                raise Refusal(400, "voice.embedding: send one, or another voice.mode", param="voice")
            config.voice.speaker_embedding.values.extend(self.voice.embedding)
        return config


class Message(Generation):
    """One message on the WebSocket; with a whole text, also the body of POST /tts/sse."""

    context_id: str | None = Field(default=None, min_length=1, max_length=128)
    more: bool = Field(default=False, alias="continue")
    flush: bool = False
    cancel: bool = False
    add_timestamps: bool = False
    max_buffer_delay_ms: int | None = Field(default=None, ge=0, description="Default: see TextPolicy of the server.")

    def to_speak_config(self, catalog: Catalog, text_format: str) -> SpeakConfig:
        if self.output_format.container != "raw":
            raise Refusal(400, "output_format.container: the WebSocket and events take only raw", param="output_format")
        delay_ms = self.max_buffer_delay_ms
        if delay_ms is not None:
            delay_ms = min(max(delay_ms, LEAST_BUFFER_MS), MOST_BUFFER_MS)
        return SpeakConfig(
            synthesis=self.to_config(catalog, text_format),
            timestamps=TIMESTAMP_MODE_WORD if self.add_timestamps else TIMESTAMP_MODE_UNSPECIFIED,
            text_policy=TextPolicy(max_buffer_delay_ms=delay_ms),
        )
