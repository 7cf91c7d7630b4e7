"""All sizes and numbers of a training run: for the built-in checkpoints, and for toys that run through all stages."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sonorant.training.codec.settings import FULL_CODEC, SMALL_CODEC, TOY_CODEC, CodecSettings
from sonorant.training.hearing.settings import HearingSettings
from sonorant.training.talker.losses import Regularization
from sonorant.training.talker.packing import BatchShape, Mix
from sonorant.training.talker.rows import StoreSizes
from sonorant.training.talker.trainer import TrainerSettings


@dataclass(frozen=True, slots=True)
class StackSizes:
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int


@dataclass(frozen=True, slots=True)
class SpeakerEncoderSizes:
    channels: int
    attention_channels: int
    squeezed_channels: int


@dataclass(frozen=True, slots=True)
class SpeakerSettings:
    """Settings of a checkpoint that clones voices."""

    encoder: SpeakerEncoderSizes
    sentences_each: int  # sentences of each speaker
    references_each: int  # how many of these go into the speaker encoder
    hearing: HearingSettings = field(default_factory=HearingSettings)


@dataclass(frozen=True, slots=True)
class TalkerSettings:
    stack: StackSizes
    text_hidden_size: int
    predictor: StackSizes
    trainer: TrainerSettings
    mix: Mix
    learning_rate: float
    own_history_from: float  # share of the training time after which the history has frames of the model's own
    store: StoreSizes
    min_shards: int  # training starts once so many are encoded
    evaluate_every_s: float
    held_languages: Collection[str] = ()  # in which a talker that goes on from weights must speak as before
    max_steps: int | None = None  # None: as many as there is time for


TeacherName = Literal["flite", "kokoro"]


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    teacher: TeacherName
    voices: Mapping[str, float]  # the checkpoint's, with their shares of the sentences; none if it clones
    languages: Mapping[str, float]  # the checkpoint's, with their shares of the sentences
    num_sentences: int
    num_held_out: int  # sentences of the evaluation, used for the held-out losses during training
    vocabulary: int  # text tokens, special ones included
    sentences_per_shard: int
    codec: CodecSettings
    talker: TalkerSettings
    speakers: SpeakerSettings | None = None  # None: a checkpoint of type custom_voice; otherwise base


FULL = TrainingSettings(
    teacher="kokoro",
    voices={"linden": 0.55, "wren": 0.45},
    # Of its last training, which went on from a talker that spoke English well already: docs/built-in-voice.md
    languages={"english": 0.2, "spanish": 0.4, "italian": 0.4},
    num_sentences=62_000,
    num_held_out=280,
    vocabulary=1280,
    sentences_per_shard=256,
    codec=FULL_CODEC,
    talker=TalkerSettings(
        # Talker and codec together stay under 40 MB. Shared key-value heads leave room for a seventh layer.
        stack=StackSizes(256, 768, num_layers=7, num_heads=4, num_kv_heads=2),
        text_hidden_size=256,
        predictor=StackSizes(256, 512, num_layers=2, num_heads=4, num_kv_heads=2),
        trainer=TrainerSettings(
            BatchShape(num_rows=20, length=1024),
            Regularization(dropout=0.05, corrupted=0.08, own_frames=3072, predictor_frames=6144),
        ),
        mix=Mix(whole_text=0.3, auto_language=0.3),
        learning_rate=2e-3,
        own_history_from=0.3,
        held_languages=("english",),
        store=StoreSizes(max_rows=64_000_000, max_frames=24_000_000, max_references=0),
        min_shards=6,
        evaluate_every_s=60.0,
    ),
)

# Talker, speaker encoder and codec together stay under 14.08 MB, and so both built-in checkpoints under 50 MiB.
FULL_BASE = TrainingSettings(
    teacher="kokoro",
    voices={},
    languages={"english": 1.0},
    num_sentences=150_000,
    num_held_out=200,
    vocabulary=1024,
    sentences_per_shard=256,
    codec=SMALL_CODEC,
    talker=TalkerSettings(
        stack=StackSizes(192, 384, num_layers=5, num_heads=4, num_kv_heads=1),
        text_hidden_size=128,
        predictor=StackSizes(128, 320, num_layers=2, num_heads=2, num_kv_heads=1),
        trainer=TrainerSettings(
            BatchShape(num_rows=20, length=1024, num_references=96),
            Regularization(dropout=0.03, corrupted=0.08, own_frames=3072, predictor_frames=8192),
        ),
        mix=Mix(whole_text=0.25, pairs=0.3),
        learning_rate=2.5e-3,
        own_history_from=0.4,
        store=StoreSizes(max_rows=120_000_000, max_frames=24_000_000, max_references=60_000),
        min_shards=6,
        evaluate_every_s=60.0,
    ),
    speakers=SpeakerSettings(SpeakerEncoderSizes(80, 64, 32), sentences_each=8, references_each=3),
)

TOY = TrainingSettings(
    teacher="flite",
    voices={"rms": 0.7, "slt": 0.3},
    languages={"english": 1.0},
    num_sentences=60,
    num_held_out=12,
    vocabulary=384,
    sentences_per_shard=16,
    codec=TOY_CODEC,
    talker=TalkerSettings(
        stack=StackSizes(32, 64, num_layers=4, num_heads=2, num_kv_heads=1),
        text_hidden_size=32,
        predictor=StackSizes(32, 64, num_layers=1, num_heads=2, num_kv_heads=1),
        trainer=TrainerSettings(
            BatchShape(num_rows=2, length=512),
            Regularization(dropout=0.05, corrupted=0.1, own_frames=64, predictor_frames=128),
        ),
        mix=Mix(whole_text=0.3),
        learning_rate=2e-3,
        own_history_from=0.5,
        store=StoreSizes(max_rows=200_000, max_frames=60_000, max_references=0),
        min_shards=1,
        evaluate_every_s=3.0,
        max_steps=30,
    ),
)

TOY_BASE = replace(
    TOY,
    voices={},
    talker=replace(
        TOY.talker,
        text_hidden_size=16,
        trainer=replace(TOY.talker.trainer, shape=BatchShape(num_rows=2, length=512, num_references=3)),
        mix=Mix(whole_text=0.3, pairs=0.5),
        store=replace(TOY.talker.store, max_references=100),
    ),
    speakers=SpeakerSettings(
        SpeakerEncoderSizes(16, 8, 8),
        sentences_each=4,
        references_each=2,
        hearing=HearingSettings(
            num_voices=2, num_takes=4, take_frames=4, line_frames=200, reference_frames=10, max_steps=3
        ),
    ),
)
