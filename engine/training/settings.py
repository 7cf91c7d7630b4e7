"""Every size and number of one training run: the built-in voice's, and a toy's that goes through the same motions."""

from dataclasses import dataclass

from engine.training.codec.settings import FULL_CODEC, TOY_CODEC, CodecSettings
from engine.training.talker.losses import Regularization
from engine.training.talker.trainer import TrainerSettings


@dataclass(frozen=True, slots=True)
class StackSizes:
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int


@dataclass(frozen=True, slots=True)
class TalkerSettings:
    stack: StackSizes
    predictor: StackSizes
    trainer: TrainerSettings
    learning_rate: float
    own_history_from: float  # part of the training time after which the model's own frames stand in the history
    whole_text_share: float  # sentences in the non-streaming layout
    max_rows: int  # capacity of the row store
    max_frames: int
    min_shards: int  # training starts when so many are encoded
    evaluate_every_s: float


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    num_sentences: int
    num_held_out: int  # of the evaluation's, for the losses that training watches
    vocabulary: int  # text tokens, special ones included
    codec_share: float  # of the time, if the codec is trained
    sentences_per_shard: int
    codec: CodecSettings
    talker: TalkerSettings


FULL = TrainingSettings(
    num_sentences=400_000,
    num_held_out=200,
    vocabulary=1024,
    codec_share=0.45,
    sentences_per_shard=256,
    codec=FULL_CODEC,
    talker=TalkerSettings(
        # Talker and codec together stay under 40 MB. Shared key-value heads pay for a seventh layer.
        stack=StackSizes(256, 768, num_layers=7, num_heads=4, num_kv_heads=2),
        predictor=StackSizes(256, 512, num_layers=2, num_heads=4, num_kv_heads=2),
        trainer=TrainerSettings(
            num_rows=40,
            length=512,
            regularization=Regularization(dropout=0.05, corrupted=0.08, own_frames=3072, predictor_frames=6144),
        ),
        learning_rate=2e-3,
        own_history_from=0.4,
        whole_text_share=0.3,
        max_rows=64_000_000,
        max_frames=24_000_000,
        min_shards=6,
        evaluate_every_s=60.0,
    ),
)

TOY = TrainingSettings(
    num_sentences=60,
    num_held_out=12,
    vocabulary=384,
    codec_share=0.6,
    sentences_per_shard=16,
    codec=TOY_CODEC,
    talker=TalkerSettings(
        stack=StackSizes(32, 64, num_layers=4, num_heads=2, num_kv_heads=1),
        predictor=StackSizes(32, 64, num_layers=1, num_heads=2, num_kv_heads=1),
        trainer=TrainerSettings(
            num_rows=2,
            length=512,
            regularization=Regularization(dropout=0.05, corrupted=0.1, own_frames=64, predictor_frames=128),
        ),
        learning_rate=2e-3,
        own_history_from=0.5,
        whole_text_share=0.3,
        max_rows=200_000,
        max_frames=60_000,
        min_shards=1,
        evaluate_every_s=5.0,
    ),
)
