"""Sizes and rates of the codec's training."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class CodecSettings:
    num_codebooks: int
    num_codes: int
    vector_dim: int  # of one codebook entry
    codebook_dim: int  # of a group's vector after projection
    encoder_filters: int
    encoder_hidden_size: int
    encoder_layers: int
    latent_dim: int
    decoder_hidden_size: int
    decoder_layers: int
    decoder_dim: int
    window: int  # frames that the decoder's attention sees
    head_size: int  # of stage 1's reading head
    stage1_share: float  # of the time for the codec
    stage1_rate: float
    stage1_crops: tuple[tuple[int, int], ...]  # (frames, crops per batch), used in turn
    steps_without_books: int  # at the beginning, before vectors are quantized
    stage2_rate: float
    discriminator_rate: float
    stage2_crop: tuple[int, int]
    compared_frames: int  # how many frames of a crop the discriminators see
    period_channels: tuple[int, ...]
    spectral_channels: int
    max_frames: int  # of speech kept on the device
    max_steps: int | None = None  # of each stage; None: as many as there is time for


FULL_CODEC = CodecSettings(
    num_codebooks=8,
    num_codes=512,
    vector_dim=64,
    codebook_dim=128,
    encoder_filters=16,  # as many as the size of the checkpoint allows
    encoder_hidden_size=256,
    encoder_layers=2,
    latent_dim=256,
    decoder_hidden_size=256,
    decoder_layers=4,
    decoder_dim=192,
    window=16,
    head_size=384,
    stage1_share=0.18,
    stage1_rate=8e-4,
    stage1_crops=((24, 96), (40, 56), (24, 96), (88, 24), (40, 56), (24, 96)),
    steps_without_books=400,
    stage2_rate=6e-4,
    discriminator_rate=3e-4,
    stage2_crop=(24, 16),
    compared_frames=10,
    period_channels=(16, 64, 160, 256),
    spectral_channels=32,
    max_frames=4_000_000,
)

# For a checkpoint that clones: the codec must handle every voice, and has a third of the bytes.
SMALL_CODEC = replace(
    FULL_CODEC,
    num_codebooks=6,
    encoder_filters=10,
    encoder_hidden_size=128,
    latent_dim=140,
    decoder_hidden_size=128,
    decoder_layers=3,
    decoder_dim=176,
    stage1_share=0.4,  # six books and a small encoder learn slowly
    stage1_crops=((24, 144), (40, 84), (24, 144), (88, 36), (40, 84), (24, 144)),
    stage1_rate=1e-3,
    stage2_rate=4e-4,
    discriminator_rate=2e-4,
)

TOY_CODEC = CodecSettings(
    num_codebooks=3,
    num_codes=32,
    vector_dim=8,
    codebook_dim=16,
    encoder_filters=2,
    encoder_hidden_size=32,
    encoder_layers=1,
    latent_dim=16,
    decoder_hidden_size=64,
    decoder_layers=1,
    decoder_dim=32,
    window=16,
    head_size=16,
    stage1_share=0.3,
    stage1_rate=8e-4,
    stage1_crops=((8, 2),),
    steps_without_books=2,
    stage2_rate=6e-4,
    discriminator_rate=3e-4,
    stage2_crop=(8, 1),
    compared_frames=4,
    period_channels=(2, 4),
    spectral_channels=2,
    max_frames=20_000,
    max_steps=40,
)
