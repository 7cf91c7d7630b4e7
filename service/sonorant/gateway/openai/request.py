"""The body of POST /v1/audio/speech with the fields of OpenAI, vLLM-Omni and SGLang-Omni, and its translation.

Its schema is a part of the OpenAPI document. Unknown fields are ignored, as in vLLM-Omni.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from sonorant.client import synthesis_config
from sonorant.gateway.encoders import FORMATS, NATIVE_RATE_HZ
from sonorant.gateway.errors import Refusal
from sonorant.gateway.openai.data_uris import ONLY_DATA, recording_in
from sonorant.gateway.upstream.catalog import Catalog
from sonorant.gateway.upstream.voices import DEFAULT_VOICE, OPENAI_VOICES, resolve_voice
from sonorant.gateway.web.json_input import MAX_EMBEDDING, MAX_NAME_CHARS, MAX_TEXT_CHARS, MAX_UINT32, TextFields
from sonorant.tts.v1.synthesis_pb2 import SynthesisConfig

ResponseFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
TaskType = Literal["CustomVoice", "VoiceDesign", "Base"]
MaxLead = Annotated[
    int,
    Field(
        ge=0,
        le=MAX_UINT32,
        description="How many ms audio may be sent ahead of its listener; 0 = no limit. A Sonorant extension.",
    ),
]


def _voice_name(value: Any) -> Any:
    """The name in a voice; OpenAI also accepts `{"id": "..."}`."""
    return value.get("id") if isinstance(value, dict) else value


class Reference(BaseModel):
    """SGLang-Omni's way to send a recording to clone."""

    audio_path: str = Field(description=f"The recording: {ONLY_DATA}.")
    text: str | None = Field(default=None, max_length=MAX_TEXT_CHARS, description="What is said in it.")


class VoiceFields(TextFields):
    """Who speaks, and how: the fields that HTTP requests and the WebSocket have in common."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, protected_namespaces=())

    model: str | None = Field(
        None,
        max_length=MAX_NAME_CHARS,
        description="tts-1, tts-1-hd, gpt-4o-mini-tts or the name of a checkpoint; the voice decides who speaks.",
    )
    voice: Annotated[str | None, BeforeValidator(_voice_name)] = Field(
        None,
        max_length=MAX_NAME_CHARS,
        validation_alias=AliasChoices("voice", "speaker"),
        description="A voice of GET /v1/audio/voices, one of OpenAI's thirteen names, or `default`. "
        "An object with an `id` is accepted, too, and `speaker` is another name of the field.",
    )
    instructions: str | None = Field(
        None,
        max_length=MAX_TEXT_CHARS,
        description="Style in plain language; with a VoiceDesign checkpoint, the description of the voice.",
    )
    speed: float | None = Field(default=None, description="0.5 (half as fast) to 2 (twice as fast), at the same pitch.")
    sample_rate: int | None = Field(
        None, ge=1, le=MAX_UINT32, description="In hertz: 8000, 16000, 22050, 24000, 44100 or 48000. Default: 24000."
    )
    language: str | None = Field(
        default=None, max_length=MAX_NAME_CHARS, description='"English", "en", or "Auto": the model decides.'
    )
    task_type: TaskType | None = Field(
        default=None, description="Only checked against the other fields, which already determine the task."
    )
    ref_audio: str | Annotated[list[str], Field(fail_fast=True)] | None = Field(
        default=None, description=f"A recording to clone: {ONLY_DATA}."
    )
    ref_text: str | None = Field(default=None, max_length=MAX_TEXT_CHARS, description="What is said in the recording.")
    references: list[Reference] | None = Field(
        None, max_length=1, description="SGLang-Omni's form of ref_audio and ref_text."
    )
    x_vector_only_mode: bool | None = Field(
        None, description="Clone only the voice, not the manner; ref_text is ignored."
    )
    speaker_embedding: Annotated[list[float], Field(fail_fast=True)] | None = Field(
        default=None, max_length=MAX_EMBEDDING, description="A speaker embedding, instead of a recording."
    )
    max_new_tokens: int | None = Field(
        default=None, ge=1, le=4096, description="Stop after this many codec frames of 80 ms."
    )
    seed: int | None = Field(default=None, description="The same seed and request give the same audio.")
    non_streaming_mode: bool | None = Field(
        default=None, description="Qwen3-TTS's prompt layout; default: the checkpoint's."
    )
    initial_codec_chunk_frames: int | None = Field(
        None, ge=0, description="Accepted without effect: audio always begins with one frame."
    )
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = Field(default=None, ge=-1, le=MAX_UINT32)
    repetition_penalty: float | None = None

    @property
    def rate_hz(self) -> int:
        return self.sample_rate or NATIVE_RATE_HZ

    async def to_config(
        self,
        catalog: Catalog,
        encoding: str,
        text_format: str,
        read: Callable[[str, str], Awaitable[bytes]] = recording_in,
    ) -> SynthesisConfig:
        """Translate the fields for the server. `text_format`: the door's own; `read`: as `recording_in`. Raises
        Refusal."""
        if self.model and not catalog.has_model(self.model):
            message = f"model: there is no model {self.model[:80]!r}; use one of {', '.join(catalog.models)}"
            raise Refusal(404, message, param="model", code="model_not_found")
        reference, transcript = await self._reference(read)
        design = self._design(catalog, reference)
        if self.task_type == "Base" and not (reference or self.speaker_embedding or self._names_a_voice):
            raise Refusal(
                400, "task_type: Base clones, so send ref_audio, speaker_embedding or a stored voice", param="task_type"
            )
        if self.task_type == "CustomVoice" and (reference or self.speaker_embedding):
            raise Refusal(
                400,
                "task_type: CustomVoice speaks with a named voice; leave ref_audio and speaker_embedding out",
                param="task_type",
            )
        voice = (
            "" if design or reference or self.speaker_embedding else resolve_voice(self.voice or "", catalog.presets)
        )
        config = synthesis_config(
            voice=voice,
            design=design,
            reference=reference,
            transcript=transcript,
            language=(self.language or "").lower(),
            instructions="" if design else self.instructions or "",
            encoding=encoding,
            sample_rate_hz=self.sample_rate or 0,
            speed=self.speed if self.speed != 1 else None,
            non_streaming_mode=self.non_streaming_mode,
            text_format=self.text_format or text_format,
            leave_out=self.leave_out,
            directions=self.directions,
            dictionaries=self.dictionaries,
            **self._sampling(),
        )
        if self.speaker_embedding:
            config.voice.speaker_embedding.values.extend(self.speaker_embedding)
        return config

    @property
    def _names_a_voice(self) -> bool:
        return (self.voice or DEFAULT_VOICE).lower() not in (DEFAULT_VOICE, *OPENAI_VOICES)

    def _design(self, catalog: Catalog, reference: bytes | None) -> str:
        """The instructions if they describe the voice: with task_type VoiceDesign, or if nothing else is possible."""
        if self.task_type == "VoiceDesign":
            if reference or self.speaker_embedding or self._names_a_voice:
                message = (
                    "task_type: VoiceDesign makes the voice from instructions; leave out voice, ref_audio and "
                    "speaker_embedding"
                )
                raise Refusal(400, message, param="task_type")
            if not self.instructions:
                raise Refusal(400, "instructions: VoiceDesign needs a description of the voice", param="instructions")
            return self.instructions
        meant = catalog.only_designs and self.task_type is None and not (reference or self.speaker_embedding)
        return self.instructions or "" if meant and not self._names_a_voice else ""

    async def _reference(self, read: Callable[[str, str], Awaitable[bytes]]) -> tuple[bytes | None, str]:
        """The recording to clone, and its transcript."""
        audio, text, where = self.ref_audio, self.ref_text, "ref_audio"
        if self.references:
            if audio:
                raise Refusal(400, "references and ref_audio mean the same; send one of them", param="references")
            audio, text, where = self.references[0].audio_path, self.references[0].text, "references"
        if isinstance(audio, list):
            if len(audio) != 1:
                raise Refusal(400, f"{where}: send one recording, not {len(audio)}", param=where)
            (audio,) = audio
        if audio is None:
            return None, ""
        if self.speaker_embedding:
            raise Refusal(400, "ref_audio and speaker_embedding exclude each other; send one of them", param=where)
        return await read(audio, where), "" if self.x_vector_only_mode else text or ""

    def _sampling(self) -> dict[str, Any]:
        """The sampling settings that were sent; the others keep the checkpoint's defaults."""
        given: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": max(self.top_k, 0) if self.top_k is not None else None,  # in SGLang, -1 = off
            "repetition_penalty": self.repetition_penalty,
            "seed": self.seed % 2**32 if self.seed is not None else None,
            "max_frames": self.max_new_tokens,
        }
        if self.temperature == 0:  # other servers take this as greedy
            given |= {"temperature": None, "do_sample": False, "subtalker_do_sample": False}
        elif self.temperature is not None:
            given["do_sample"] = True
        return {name: value for name, value in given.items() if value is not None}


class SpeechRequest(VoiceFields):
    """POST /v1/audio/speech."""

    input: str = Field(max_length=MAX_TEXT_CHARS, description="The text.")
    response_format: ResponseFormat | None = Field(
        None, description="Default: mp3, unless the gateway was started with another one."
    )
    stream_format: Literal["audio", "sse"] | None = Field(
        default=None, description="Bytes, or server-sent events with base64."
    )
    stream: bool = Field(default=False, description="Without stream_format: true = sse, as in vLLM-Omni.")
    max_lead_ms: MaxLead = 0
    word_timestamps: bool = Field(
        False,
        description="Return when each word is heard, in the header X-Word-Timestamps. The answer is not streamed.",
    )

    @property
    def is_sse(self) -> bool:
        return self.stream_format == "sse" or (self.stream and self.stream_format is None)


assert set(FORMATS) == set(get_args(ResponseFormat))
