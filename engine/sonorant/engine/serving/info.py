"""What an engine is and can do, for its callers. What it is doing right now is in `EngineStats`."""

from dataclasses import dataclass

from sonorant.engine.checkpoint.config import Characters, Checkpoint, TaskName
from sonorant.engine.checkpoint.fingerprint import codec_fingerprint, fingerprint
from sonorant.engine.config import EngineConfig
from sonorant.engine.prompt.characters import gives_letters, lost_words
from sonorant.engine.types import SamplingParams


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the loaded checkpoint is and can do."""

    model: str
    task: TaskName
    size: str
    speakers: tuple[str, ...]  # in the order of the checkpoint; the first one is the default voice
    languages: tuple[str, ...]
    sample_rate_hz: int
    frame_samples: int
    frame_rate_hz: float
    num_codebooks: int
    codebook_size: int
    hidden_size: int
    fingerprint: str  # of the weights; does not depend on where their folder lies
    codec: str  # the same for the codec alone
    default_sampling: SamplingParams
    takes_instruct: bool
    max_context: int  # rows of a stream's prompt and frames together
    max_streams: int
    credit_frames: int  # frames that a stream may be ahead of its consumer, at most
    kept_references: int = 0  # how many recordings of clones the workers keep decoded
    max_segment_chars: int = 1000  # how much text it speaks well in one go
    silent_first_frames: int = 0  # in how many frames at its beginning it may be silent
    ends_quieter_db: float = 0.0  # the end of a text, than the end of a sentence within it
    whole_after_cut: bool = False  # text behind a cut by length is spoken better with all of it in the prompt
    real_time_factor: float | None = None  # seconds of work for a second of speech of one stream; None: not measured
    times_text: bool = False  # it can tell which text is spoken when; False until its workers are up
    characters: Characters = "unicode"  # those it was trained on

    def lost_words(self, text: str) -> list[str]:
        """Return the words of a text of which the model is given nothing."""
        return [] if self.characters == "unicode" else lost_words(text)

    def gives_letters(self, text: str) -> bool:
        """Whether the model is given a letter or a digit for some character of a text."""
        return self.characters == "unicode" or text.isascii() or gives_letters(text)


def engine_info(checkpoint: Checkpoint, config: EngineConfig) -> EngineInfo:
    """Collect the info. Reads some megabytes of the weights, for their fingerprint. Raises CheckpointError."""
    return EngineInfo(
        model=checkpoint.name,
        task=checkpoint.task,
        size=checkpoint.size,
        speakers=tuple(checkpoint.talker.speaker_ids),
        languages=checkpoint.languages,
        sample_rate_hz=checkpoint.codec.output_sample_rate,
        frame_samples=checkpoint.codec.frame_samples,
        frame_rate_hz=checkpoint.frame_rate_hz,
        num_codebooks=checkpoint.talker.num_codebooks,
        codebook_size=checkpoint.code_predictor.vocab_size,
        hidden_size=checkpoint.talker.stack.hidden_size,
        fingerprint=fingerprint(checkpoint, config),
        codec=codec_fingerprint(checkpoint, config),
        default_sampling=checkpoint.default_sampling,
        max_segment_chars=checkpoint.max_segment_chars,
        silent_first_frames=checkpoint.silent_first_frames,
        ends_quieter_db=checkpoint.ends_quieter_db,
        whole_after_cut=checkpoint.whole_after_cut,
        characters=checkpoint.characters,
        takes_instruct=checkpoint.takes_instruct,
        max_context=config.talker.max_context,
        max_streams=config.max_streams,
        credit_frames=config.talker.credit_frames,
        kept_references=config.code2wav.kept_references,
    )
