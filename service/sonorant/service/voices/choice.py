"""Turns a VoiceSelector into what the engine needs to speak with that voice, wherever the voice comes from.

Every choice names the checkpoint that speaks. The engine's encoder encodes recordings; results are cached.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from sonorant.engine import (
    MAX_MIXED_VOICES,
    NOTHING_SPENT,
    EngineInfo,
    EnginePool,
    InvalidRecording,
    InvalidSynthesis,
    Need,
    Spent,
    mix_embeddings,
)
from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.usage import Usage
from sonorant.service.calls import context as call_context
from sonorant.service.errors import InvalidField, NotServed, VoiceNotAllowed, VoiceNotFound, VoiceUnusable
from sonorant.service.text.checks import MAX_INSTRUCTION_CHARS, check_text
from sonorant.service.voices.file import VoiceAbout, VoiceTensors
from sonorant.service.voices.requests import MAX_TRANSCRIPT_CHARS
from sonorant.service.voices.stored import StoredVoices
from sonorant.service.voices.transcripts import check_transcript
from sonorant.tts.v1 import voice_pb2


class Presets:
    def __init__(self, models: Sequence[EngineInfo]) -> None:
        """If several checkpoints have a speaker, the first one's is listed; it is also the one that speaks."""
        self.voices: dict[str, voice_pb2.Voice] = {}  # by their ids, which are in lower case
        for info in models:
            for speaker in info.speakers:
                voice = voice_pb2.Voice(
                    voice_id=speaker,
                    kind=voice_pb2.VOICE_KIND_PRESET,
                    display_name=speaker.replace("_", " ").title(),
                    description=f"A speaker of {info.model}.",
                    languages=info.languages,
                    model=info.model,
                )
                self.voices.setdefault(speaker, voice)
        self.names = tuple(self.voices)


_LACKS_CLONING = "CHECKPOINT_LACKS_CLONING"


@dataclass(frozen=True, slots=True)
class VoiceChoice:
    """A voice in the form that the engine takes."""

    info: EngineInfo  # of the checkpoint that speaks
    field: str  # path of the request's field that chose the voice
    voice_id: str = ""  # "" = a voice without an id, sent along with the request
    speaker: str | None = None
    design: str = ""
    x_vector: npt.NDArray[np.float32] | None = None  # [hidden]
    reference_codes: npt.NDArray[np.int16] | None = None  # [frames, codebooks]
    transcript: str = ""  # of the reference; "" without codes
    reference_audio_ms: int = 0
    spent: Spent = NOTHING_SPENT  # on encoding its recording

    @property
    def is_complete(self) -> bool:
        """Whether the voice can speak: False for a recording that was only checked."""
        return bool(self.design) or self.x_vector is not None

    @property
    def tensors(self) -> VoiceTensors:
        return VoiceTensors(self.x_vector, self.reference_codes)


class VoiceChooser:
    def __init__(self, engine: EnginePool, presets: Presets, stored: StoredVoices | None, usage: Usage) -> None:
        """`stored`: None on a server that keeps no voices."""
        self._engine = engine
        self._presets = presets
        self._stored = stored
        self._usage = usage

    async def choose(
        self, selector: voice_pb2.VoiceSelector, path: str, caller: Caller, wait_s: float = 0.0
    ) -> VoiceChoice:
        """Return the voice that a selector asks for. `path`: the selector's path in its request. `wait_s`: for how long
        a recording may wait to be encoded, if that is longer than the server's setting.

        Raises InvalidField, NotServed, VoiceNotFound, VoiceNotAllowed, VoiceUnusable, and what the store and the
        engine's encoder raise.
        """
        which = selector.WhichOneof("voice")
        if which is None:
            return self._default(path, caller)
        if which == "voice_id":
            return await self._named(selector.voice_id, f"{path}.voice_id", caller)
        check_allowed(caller, "", path)
        match which:
            case "reference":
                return await self.cloned(selector.reference, f"{path}.reference", wait_s)
            case "design":
                return self.designed(selector.design, f"{path}.design")
            case "speaker_embedding":
                return self.embedded(selector.speaker_embedding, f"{path}.speaker_embedding")
            case _:
                return await self.mixed(selector.mix, f"{path}.mix", caller)

    async def cloned(self, reference: voice_pb2.ReferenceAudio, path: str, wait_s: float = 0.0) -> VoiceChoice:
        info = self._for_recordings(reference, path)
        caller = call_context.current().caller
        # With API keys, each key has its own: the time of an answer would tell others that a recording was here before.
        holder = caller.number if caller.name else 0
        try:
            voice = await self._engine.encode_reference(
                reference.audio,
                with_codes=bool(reference.transcript),
                caller=caller.number,
                holder=holder,
                wait_s=wait_s,
            )
        except InvalidRecording as error:
            raise InvalidField(f"{path}.audio", str(error), error.reason) from error
        if reference.transcript:
            check_transcript(reference.transcript, voice.recording, f"{path}.transcript")
        self._usage.add(caller, num_clones=1)
        return VoiceChoice(
            info,
            path,
            x_vector=voice.x_vector,
            reference_codes=voice.codes,
            transcript=reference.transcript,
            reference_audio_ms=voice.recording.duration_ms,
            spent=voice.spent,
        )

    async def check_recording(self, reference: voice_pb2.ReferenceAudio, path: str) -> VoiceChoice:
        """Check a recording without encoding it: the choice has no embedding and no codes."""
        info = self._for_recordings(reference, path)
        try:
            caller = call_context.current().caller
            recording = await self._engine.check_reference(reference.audio, caller=caller.number)
        except InvalidRecording as error:
            raise InvalidField(f"{path}.audio", str(error), error.reason) from error
        if reference.transcript:
            check_transcript(reference.transcript, recording, f"{path}.transcript")
        return VoiceChoice(info, path, transcript=reference.transcript, reference_audio_ms=recording.duration_ms)

    def designed(self, design: str, path: str) -> VoiceChoice:
        info = self._engine.info_for(Need(("voice_design",)))
        if info.task != "voice_design":
            message = "a described voice needs a VoiceDesign checkpoint, and this server has none; use voice_id"
            raise NotServed(path, message, "CHECKPOINT_LACKS_DESIGN")
        if not design.strip():
            raise InvalidField(path, "empty; describe the voice")
        check_text(design, MAX_INSTRUCTION_CHARS, path)
        return VoiceChoice(info, path, design=design)

    def embedded(self, embedding: voice_pb2.SpeakerEmbedding, path: str) -> VoiceChoice:
        num_values = len(embedding.values)
        info = self._engine.info_for(Need(("base", "custom_voice"), embedding_size=num_values))
        if info.task == "voice_design":
            message = f"{info.model} is a VoiceDesign checkpoint and takes no speaker embedding; use design"
            raise NotServed(path, message, _LACKS_CLONING)
        if num_values != info.hidden_size:
            raise InvalidField(path, f"{num_values} numbers; {info.model} takes {info.hidden_size}")
        x_vector = np.array(embedding.values, dtype=np.float32)
        if not np.isfinite(x_vector).all():
            raise InvalidField(path, "has values that are not finite; make it again")
        return VoiceChoice(info, path, x_vector=x_vector)

    async def mixed(self, mix: voice_pb2.VoiceMix, path: str, caller: Caller) -> VoiceChoice:
        if mix.method not in voice_pb2.MixMethod.values():
            raise InvalidField(f"{path}.method", f"{mix.method} is not a MixMethod")
        if not 2 <= len(mix.voices) <= MAX_MIXED_VOICES:
            raise InvalidField(f"{path}.voices", f"{len(mix.voices)} voices; a mix is of 2 to {MAX_MIXED_VOICES}")
        parts = [await self._part(part, f"{path}.voices[{index}]", caller) for index, part in enumerate(mix.voices)]
        # Voices with an id belong to one checkpoint; bare embeddings fit all checkpoints of their size.
        lead = next((part for part in parts if part.voice_id), parts[0])
        for part in parts:
            if part.info.hidden_size != lead.info.hidden_size or (
                part.voice_id and part.info.fingerprint != lead.info.fingerprint
            ):
                message = f"cannot mix voices of {part.info.model} and {lead.info.model}; use voices of one checkpoint"
                raise InvalidField(part.field, message)
        try:
            x_vector = mix_embeddings(
                [part.x_vector for part in parts if part.x_vector is not None],
                [part.weight for part in mix.voices],
                spherical=mix.method == voice_pb2.MIX_METHOD_SPHERICAL,
            )
        except InvalidSynthesis as error:
            raise InvalidField(path, str(error)) from error
        return VoiceChoice(lead.info, path, x_vector=x_vector)

    def stand_in(self, path: str) -> VoiceChoice:
        """Return what stands for a voice that is gone, where everything else of a config is needed."""
        info = self._engine.info
        if info.task == "voice_design":
            return VoiceChoice(info, path)
        return VoiceChoice(info, path, x_vector=np.zeros(info.hidden_size, np.float32))

    def kept(self, about: VoiceAbout, tensors: VoiceTensors, path: str) -> VoiceChoice:
        """Return the choice of a stored voice. Raises VoiceUnusable or NotServed if no checkpoint here can speak it."""
        if about.kind == "designed":
            return replace(self.designed(about.design, path), voice_id=about.voice_id)
        info = next((info for info in self._engine.infos if info.fingerprint == about.fingerprint), None)
        if info is None:
            raise VoiceUnusable(
                about.voice_id,
                f"{path}: the voice {about.voice_id!r} was made with {about.model}, which is not served here "
                f"({self._engine.info.model} is); create it again",
                "VOICE_OF_OTHER_CHECKPOINT",
            )
        return VoiceChoice(
            info,
            path,
            voice_id=about.voice_id,
            x_vector=tensors.speaker_embedding,
            reference_codes=tensors.reference_codes,
            transcript=about.transcript,
            reference_audio_ms=about.reference_audio_ms,
        )

    def _default(self, path: str, caller: Caller) -> VoiceChoice:
        """Return the first preset that the caller may use."""
        speakers = self._presets.names
        if not speakers:
            check_allowed(caller, "", path)
            return VoiceChoice(self._engine.info_for(Need(("voice_design",))), path)
        name = next(filter(caller.may_use, speakers), speakers[0])
        check_allowed(caller, name, path)
        return self._preset(name, path)

    async def _named(self, voice_id: str, path: str, caller: Caller) -> VoiceChoice:
        name = voice_id.lower()
        check_allowed(caller, name, path)
        if name in self._presets.names:
            return self._preset(name, path)
        if self._stored is not None:
            try:
                voice = await self._stored.find(caller, name)
                return self.kept(voice.about, await self._stored.tensors(voice), path)
            except VoiceNotFound:
                pass  # raised again below, with a hint
        close = get_close_matches(name[:64], self._presets.names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "ListVoices tells which there are"
        raise VoiceNotFound(name, path=path, hint=hint)

    def _preset(self, name: str, path: str) -> VoiceChoice:
        info = self._engine.info_for(Need(("custom_voice",), name))
        return VoiceChoice(info, path, voice_id=name, speaker=name)

    def _for_recordings(self, reference: voice_pb2.ReferenceAudio, path: str) -> EngineInfo:
        """Check a recording's fields and return the checkpoint that clones from recordings."""
        info = self._engine.info_for(Need(("base",)))
        if info.task != "base":
            message = f"{info.model} is not a Base checkpoint and cannot clone; use voice_id or design"
            raise NotServed(path, message, _LACKS_CLONING)
        if not reference.audio:
            raise InvalidField(f"{path}.audio", "empty; give a WAV, FLAC, OGG or MP3 file", "RECORDING_UNREADABLE")
        check_text(reference.transcript, MAX_TRANSCRIPT_CHARS, f"{path}.transcript")
        if reference.transcript and not reference.transcript.strip():
            raise InvalidField(f"{path}.transcript", "only white space; give the words, or leave it out")
        return info

    async def _part(self, part: voice_pb2.WeightedVoice, path: str, caller: Caller) -> VoiceChoice:
        """Return the choice of one part of a mix. It has an embedding."""
        if not (math.isfinite(part.weight) and part.weight >= 0):
            raise InvalidField(f"{path}.weight", f"{part.weight} must be a finite number of at least 0")
        which = part.WhichOneof("voice")
        if which is None:
            raise InvalidField(path, "set voice_id or speaker_embedding")
        if which == "speaker_embedding":
            return self.embedded(part.speaker_embedding, f"{path}.speaker_embedding")
        voice = await self._named(part.voice_id, f"{path}.voice_id", caller)
        if voice.speaker is not None:
            return replace(voice, x_vector=self._engine.speaker_embedding(voice.speaker))
        if voice.x_vector is None:
            raise InvalidField(f"{path}.voice_id", f"{voice.voice_id!r} is a designed voice, which has no embedding")
        return voice


def check_allowed(caller: Caller, voice_id: str, path: str) -> None:
    """Raise VoiceNotAllowed if the caller's key does not allow this voice; "" means a voice without an id."""
    if not caller.may_use(voice_id):
        raise VoiceNotAllowed(f"{path}: this API key allows only {', '.join(sorted(caller.voices or ()))}")
