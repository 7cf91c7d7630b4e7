"""The log-mel spectrogram that goes into the speaker encoder. Float32, whatever the model's dtype.

Source of the numbers: QwenLM/Qwen3-TTS qwen_tts/core/models/modeling_qwen3_tts.py, `extract_speaker_embedding` and
`mel_spectrogram`; the filters are librosa's default ones (Slaney scale, Slaney norm).
"""

import math

import torch
from torch import Tensor

FFT_SIZE = 1024
HOP_SAMPLES = 256
PADDING_SAMPLES = (FFT_SIZE - HOP_SAMPLES) // 2  # reflected, at both ends
MAGNITUDE_FLOOR = 1e-9
MEL_FLOOR = 1e-5

# The Slaney scale: linear up to 1 kHz, then logarithmic.
LINEAR_HZ_PER_MEL = 200.0 / 3.0
LOG_START_HZ = 1000.0
LOG_STEP = math.log(6.4) / 27.0


class MelSpectrogram:
    """Computes log-mel spectrograms; owns the window and the filters."""

    def __init__(self, sample_rate_hz: int, num_mels: int, device: torch.device | str = "cpu") -> None:
        self._window = torch.hann_window(FFT_SIZE).to(device)
        self._filters = mel_filters(sample_rate_hz, num_mels).T.contiguous().to(device)

    def __call__(self, samples: Tensor, length: Tensor | None = None) -> Tensor:
        """samples [num_samples] float32 -> [num_samples // HOP_SAMPLES, num_mels].

        `length` [1]: only so many samples are the recording's, more than PADDING_SAMPLES; frames from
        length // HOP_SAMPLES on mean nothing.
        """
        last = (len(samples) if length is None else length) - 1
        places = torch.arange(-PADDING_SAMPLES, len(samples) + PADDING_SAMPLES, device=samples.device).abs()
        places = (last - (last - places).abs()).clamp(min=0)  # reflected at the recording's own end
        frames = samples[places].unfold(0, FFT_SIZE, HOP_SAMPLES) * self._window
        spectrum = torch.fft.rfft(frames)  # [frames, bins]
        magnitude = torch.sqrt(torch.view_as_real(spectrum).square().sum(-1) + MAGNITUDE_FLOOR)
        return (magnitude @ self._filters).clamp(min=MEL_FLOOR).log()


def mel_filters(sample_rate_hz: int, num_mels: int) -> Tensor:
    """Triangles of equal area between 0 Hz and half the sample rate; [num_mels, FFT_SIZE // 2 + 1]."""
    nyquist_hz = sample_rate_hz / 2
    log_start_mel = LOG_START_HZ / LINEAR_HZ_PER_MEL
    top_mel = log_start_mel + math.log(nyquist_hz / LOG_START_HZ) / LOG_STEP
    mels = torch.linspace(0.0, top_mel, num_mels + 2, dtype=torch.float64)
    edges_hz = torch.where(
        mels < log_start_mel,
        mels * LINEAR_HZ_PER_MEL,
        LOG_START_HZ * torch.exp((mels - log_start_mel) * LOG_STEP),
    )
    bins_hz = torch.linspace(0.0, nyquist_hz, FFT_SIZE // 2 + 1, dtype=torch.float64)
    lower, center, upper = (edges_hz[i : i + num_mels, None] for i in range(3))
    rising, falling = (bins_hz - lower) / (center - lower), (upper - bins_hz) / (upper - center)
    triangles = torch.minimum(rising, falling).clamp(min=0.0)
    return (triangles * 2.0 / (upper - lower)).float()
