"""How large a tiny checkpoint is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TinySizes:
    """The published shape, shrunk. `predictor_hidden` equal to `hidden` leaves out small_to_mtp_projection, as 0.6B."""

    size_tag: str = "1b7"
    hidden: int = 32
    intermediate: int = 48
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    text_hidden: int = 24
    predictor_hidden: int = 16
    predictor_layers: int = 2
    codebooks: int = 4
    codebook_size: int = 64
    codec_dim: int = 32  # codebook_dim and latent_dim of the codec
    codec_hidden: int = 16
    codec_layers: int = 2
    codec_window: int = 8
    decoder_dim: int = 32
    upsample_rates: tuple[int, ...] = (8, 5, 4, 3)
    encoder_hidden: int = 32
    encoder_quantizers: int = 6
