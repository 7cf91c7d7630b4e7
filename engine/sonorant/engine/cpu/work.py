"""What a frame of a checkpoint with rounded weights needs on a CPU.

A frame of the talker reads its weights once, and those of the code predictor once for each further codebook, so memory
limits it; with many streams its multiplications do. Code2Wav multiplies more than it reads.
"""

from dataclasses import dataclass

import torch
from torch import nn

from sonorant.engine.checkpoint.config import Checkpoint, CodecDecoderConfig
from sonorant.engine.model.codec.code2wav import Code2Wav, LatentUpsampling, UpsamplingBlock
from sonorant.engine.model.rounded import Rounding, use_rounded
from sonorant.engine.model.talker import Talker


@dataclass(frozen=True, slots=True)
class FrameWork:
    talker_bytes: int  # read once for all streams together, like the next one
    predictor_bytes: int  # what is read for one of the further codebooks
    later_codebooks: int
    convolutions: int  # multiplications of Code2Wav for each stream

    @property
    def read_bytes(self) -> int:
        """By talker and code predictor, for all streams together."""
        return self.talker_bytes + self.later_codebooks * self.predictor_bytes


def rounded_work(checkpoint: Checkpoint, rounding: Rounding) -> FrameWork:
    with torch.device("meta"):
        talker = Talker(checkpoint)
        use_rounded(talker, rounding)
    predictor, later = talker.code_predictor, checkpoint.talker.num_codebooks - 1
    once = _matrix_bytes(talker.model.layers) + _matrix_bytes(talker.codec_head)
    each = _matrix_bytes(predictor.model.layers) + _matrix_bytes(predictor.small_to_mtp_projection)
    each += _matrix_bytes(predictor.lm_head) // later  # one head for each
    return FrameWork(once, each, later, code2wav_multiplications(checkpoint.codec.decoder))


def code2wav_multiplications(config: CodecDecoderConfig) -> int:
    """Multiplications of a frame: those of each layer's weights at each position of its input."""
    with torch.device("meta"):
        decoder = Code2Wav(config)
    total, positions = _num_weights(decoder.pre_conv) + _num_weights(decoder.pre_transformer), 1
    for stage in (*decoder.upsample, *decoder.decoder):
        if not isinstance(stage, LatentUpsampling | UpsamplingBlock):
            total += positions * _num_weights(stage)
            continue
        up, rate = (stage[0], stage.ratio) if isinstance(stage, LatentUpsampling) else (stage.block[1], stage.rate)
        total += positions * _num_weights(up) + positions * rate * (_num_weights(stage) - _num_weights(up))
        positions *= rate
    return total


def _matrix_bytes(module: nn.Module) -> int:
    return sum(weight.nbytes for weight in module.parameters() if weight.dtype == torch.int8)


def _num_weights(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters() if weight.dim() > 1)
