"""Encodes a recording for voice cloning: to a speaker embedding and to codec frames. Base checkpoints only.

Owns both encoders, which are loaded when they are first needed. Encode once per voice, and outside the loops that serve
streams: a recording would hold them up.
"""

from functools import cached_property

import torch

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cuda import compute_dtype, find_device
from sonorant.engine.errors import InvalidSynthesis, UnsupportedTask
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.engine.model.mel import HOP_SAMPLES, PADDING_SAMPLES, MelSpectrogram
from sonorant.engine.model.speaker_encoder import SpeakerEncoder
from sonorant.engine.model.weights import TensorFile, init_random, load_module
from sonorant.engine.types import Float32Array, Int16Array

FIELD = "reference"


class ReferenceEncoder:
    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        if checkpoint.speaker_encoder is None:
            raise UnsupportedTask(
                FIELD, f"{checkpoint.name} cannot clone a voice; leave the reference out or load a Base checkpoint"
            )
        self._checkpoint = checkpoint
        self._config = config
        self._speaker = checkpoint.speaker_encoder
        self._mel = MelSpectrogram(self._speaker.sample_rate, self._speaker.mel_dim)
        self._device = find_device(config.encoder.device)

    @property
    def sample_rate_hz(self) -> int:
        return self._checkpoint.codec.input_sample_rate

    def load(self) -> None:
        """Load both encoders now, instead of when they are first needed. Raises CheckpointError."""
        _ = self._speaker_encoder, self._codec_encoder

    @torch.inference_mode()
    def x_vector(self, samples: Float32Array) -> Float32Array:
        """Return the speaker embedding [hidden] of mono samples at `sample_rate_hz`.

        Raises InvalidSynthesis if the recording is too short.
        """
        encoder = self._speaker_encoder
        min_samples = max(encoder.min_frames * HOP_SAMPLES, PADDING_SAMPLES + 1)
        if len(samples) < min_samples:
            raise InvalidSynthesis(
                FIELD,
                f"the reference recording lasts {len(samples) / self.sample_rate_hz:.3f} s; the speaker encoder needs "
                f"at least {min_samples / self.sample_rate_hz:.3f} s; record a few seconds for a good voice",
            )
        mel = self._mel(torch.from_numpy(samples))
        weight = encoder.fc.weight
        embedding: Float32Array = encoder(mel[None].to(weight.device, weight.dtype))[0].float().cpu().numpy()
        return embedding

    @torch.inference_mode()
    def codes(self, samples: Float32Array) -> Int16Array:
        """Return the codec frames [frames, codebooks] of mono samples at `sample_rate_hz`, an incomplete last frame
        included."""
        encoder = self._codec_encoder
        weight = encoder.downsample.conv.weight
        codes: Int16Array = (
            encoder(torch.from_numpy(samples).to(weight.device, weight.dtype)).to(torch.int16).cpu().numpy()
        )
        return codes

    @cached_property
    def _speaker_encoder(self) -> SpeakerEncoder:
        with torch.device("meta"):
            encoder = SpeakerEncoder(self._speaker)
        dtype = compute_dtype(self._config.dtype, self._checkpoint.dtype, self._device)
        self._load(encoder, "model.safetensors", "speaker_encoder.", dtype)
        return encoder

    @cached_property
    def _codec_encoder(self) -> CodecEncoder:
        with torch.device("meta"):
            encoder = CodecEncoder(self._checkpoint.codec)
        dtype = compute_dtype(self._config.dtype, "float32", self._device)
        self._load(encoder, "speech_tokenizer/model.safetensors", "encoder.", dtype)
        return encoder

    def _load(self, module: torch.nn.Module, file_name: str, prefix: str, dtype: torch.dtype) -> None:
        if self._config.load_format == "dummy":
            init_random(module, self._device, dtype, self._config.seed)
        else:
            load_module(module, TensorFile(self._checkpoint.folder / file_name), prefix, self._device, dtype)
