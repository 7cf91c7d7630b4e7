"""What a checkpoint can speak, and the model's input for it: the same for all its worker pairs. Needs no workers."""

from collections.abc import Sequence
from dataclasses import dataclass

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.embeddings import largest_value, speaker_embedding
from sonorant.engine.config import EngineConfig
from sonorant.engine.errors import InvalidSynthesis, UnsupportedTask
from sonorant.engine.prompt import layout
from sonorant.engine.prompt.explain import Explanation, explain_prompt
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.prompt.validation import check_size_of_embedding, check_speaker
from sonorant.engine.serving.info import EngineInfo, engine_info
from sonorant.engine.types import LARGEST_VALUE, Float32Array, Int16Array, SynthesisParams


@dataclass(frozen=True, slots=True)
class Model:
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    info: EngineInfo  # before anything was measured
    has_weights: bool  # or random ones
    largest_value: float  # that an embedding may have

    @classmethod
    def read(cls, config: EngineConfig) -> "Model":
        """Takes a tenth of a second or more. Raises CheckpointError."""
        checkpoint = load_checkpoint(config.model)
        has_weights = config.load_format != "dummy"
        return cls(
            checkpoint,
            Tokenizer.load(config.model, checkpoint.characters, in_words=checkpoint.in_words),
            engine_info(checkpoint, config),
            has_weights,
            min(LARGEST_VALUE, largest_value(checkpoint)) if has_weights else LARGEST_VALUE,
        )

    def check(self, params: SynthesisParams) -> layout.PromptLayout:
        """Return the layout of the prompt. Raises InvalidSynthesis, UnknownSpeaker or UnsupportedTask."""
        num_chars, limit = len(params.reference_text), self.info.max_context
        if num_chars > limit:  # a character makes up to four tokens, so this bounds the pickled ids of OpenStream
            raise InvalidSynthesis(
                "reference_text",
                f"reference_text has {num_chars} characters, but {limit} is the most; shorten the recording and its "
                "text",
            )
        prompt = layout.check(params, self.checkpoint, self.tokenizer, limit)
        if params.x_vector is not None:
            check_size_of_embedding(params.x_vector, self.largest_value, self.checkpoint)
        return prompt

    def check_known(self, codes: Int16Array, params: SynthesisParams) -> None:
        """Raise InvalidSynthesis unless a stream can continue after these frames."""
        self._check_codes("known_codes", codes)
        if len(codes) > params.sampling.max_frames:
            raise InvalidSynthesis(
                "known_codes", f"known_codes has {len(codes)} frames, but max_frames is {params.sampling.max_frames}"
            )

    def check_stored(self, segments: Sequence[Int16Array], past_codes: Int16Array | None) -> None:
        """Raise InvalidSynthesis for codes that no stream of this checkpoint can have made."""
        num_past = 0 if past_codes is None else len(past_codes)
        for codes in segments if past_codes is None else [*segments, past_codes]:
            self._check_codes("codes", codes)
        if (longest := max(map(len, segments), default=0) + num_past) > self.info.max_context:
            raise InvalidSynthesis(
                "codes",
                f"a segment has {longest} frames, past_codes included; max_context allows {self.info.max_context}",
            )
        if longest == num_past:
            raise InvalidSynthesis("codes", "these codes have no frames")

    def _check_codes(self, field: str, codes: Int16Array) -> None:
        if fault := self.checkpoint.fault_of_codes(codes, may_be_none=True):
            raise InvalidSynthesis(field, f"{field} {fault}; pass the codes that came with the audio")

    def check_clones(self) -> None:
        """Raise UnsupportedTask unless this is a Base checkpoint."""
        if self.checkpoint.speaker_encoder is None:
            raise UnsupportedTask(
                "reference", f"{self.info.model} cannot clone a voice; use one that it has, or load a Base checkpoint"
            )

    def explain(self, params: SynthesisParams, text: str, written: str | None = None) -> Explanation:
        """Explain the model's input for a text; `written`: the text before phrases in it were respelled.

        Raises InvalidSynthesis if it is too long, and what `check` raises.
        """
        self.check(params)
        return explain_prompt(params, text, self.checkpoint, self.tokenizer, self.info.max_context, written)

    def speaker_embedding(self, speaker: str) -> Float32Array:
        """Return the embedding [hidden] of one of the checkpoint's speakers, for mixing. Reads one row of a file.

        Raises UnknownSpeaker, or UnsupportedTask if the checkpoint has no speakers or no weights.
        """
        check_speaker(speaker, self.checkpoint)
        if not self.has_weights:
            raise UnsupportedTask("speaker", f"{self.info.model} has random weights; its speakers have no embeddings")
        return speaker_embedding(self.checkpoint, speaker.lower())
