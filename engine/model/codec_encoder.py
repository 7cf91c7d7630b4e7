"""The codec encoder: a recording in, codec frames out. Needed for in-context cloning only, once per voice.

The network is the encoder half of Mimi as transformers has it; this module builds that half alone and keeps to what the
official package computes with transformers 4.57.3. Attribute names are the checkpoint's tensor names (`encoder.*`).
Sources: QwenLM/Qwen3-TTS qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py,
huggingface/transformers src/transformers/models/mimi/modeling_mimi.py.
"""

from torch import Tensor, nn
from transformers import MimiConfig
from transformers.models.mimi.modeling_mimi import (
    MimiConv1d,
    MimiEncoder,
    MimiSplitResidualVectorQuantizer,
    MimiTransformerModel,
)

from engine.checkpoint import CodecConfig
from engine.errors import CheckpointError

# transformers 4.57.3 attends to all the past, whatever window the config declares; later versions heed the window.
NO_WINDOW = 1 << 30


def mimi_config(config: CodecConfig) -> MimiConfig:
    """Raises CheckpointError if transformers refuses what the checkpoint says."""
    try:
        return MimiConfig(**{**config.encoder, "sliding_window": NO_WINDOW}, attn_implementation="sdpa")
    except Exception as error:  # transformers raises nothing narrower, in more than one line
        raise CheckpointError(f"encoder_config of the codec: {' '.join(str(error).split())}") from error


class CodecEncoder(nn.Module):
    """Not to be built on the meta device: Mimi's layers compute numbers they need in their constructors."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        mimi = mimi_config(config)
        self.encoder = MimiEncoder(mimi)
        self.encoder_transformer = MimiTransformerModel(mimi)
        stride = int(mimi.encodec_frame_rate / mimi.frame_rate)
        self.downsample = MimiConv1d(
            mimi, mimi.hidden_size, mimi.hidden_size, 2 * stride, stride, bias=False, pad_mode="replicate"
        )
        self.quantizer = MimiSplitResidualVectorQuantizer(mimi)
        self.num_codebooks = config.encoder_valid_num_quantizers
        self.frame_samples = config.encode_frame_samples

    def forward(self, samples: Tensor) -> Tensor:
        """samples [num_samples] in -1..1 -> codes [ceil(num_samples / frame_samples), codebooks]."""
        x = self.encoder(samples[None, None])
        x = self.encoder_transformer(x.transpose(1, 2))[0].transpose(1, 2)
        codes = self.quantizer.encode(self.downsample(x), self.num_codebooks)  # [codebooks, 1, frames]
        num_frames = -(-len(samples) // self.frame_samples)
        frames: Tensor = codes[:, 0, :num_frames].T
        return frames
