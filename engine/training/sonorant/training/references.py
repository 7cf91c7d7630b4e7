"""Makes the speaker encoder's training input: mels of some sentences of every made speaker."""

from functools import cache

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sonorant.engine.model.mel import FFT_SIZE, HOP_SAMPLES, MAGNITUDE_FLOOR, MEL_FLOOR, PADDING_SAMPLES, mel_filters
from sonorant.training.alignment import FRAME_SAMPLES
from sonorant.training.audio import PEAK
from sonorant.training.shards import Shard

NUM_MELS = 128
SAMPLE_RATE_HZ = 24000
REFERENCE_FRAMES = 256  # 2.7 s; a shorter sentence is repeated


def references_of(speakers: npt.NDArray[np.int32], each: int) -> npt.NDArray[np.int32]:
    """Indices of the first `each` sentences of every speaker."""
    chosen = [i for i, speaker in enumerate(speakers) if np.count_nonzero(speakers[:i] == speaker) < each]
    return np.array(chosen, np.int32)


class ReferenceMels:
    """The serving `MelSpectrogram` for many recordings of one length at once, on any device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._window = torch.hann_window(FFT_SIZE, device=device)
        self._filters = mel_filters(SAMPLE_RATE_HZ, NUM_MELS).to(device)

    def __call__(self, shard: Shard, references: npt.NDArray[np.int32]) -> npt.NDArray[np.float16]:
        """Return mels [references, REFERENCE_FRAMES, NUM_MELS] from the middle of each sentence."""
        if len(references) == 0:
            return np.zeros((0, REFERENCE_FRAMES, NUM_MELS), np.float16)
        mels: npt.NDArray[np.float16] = self.mels(self.crops(shard, references, REFERENCE_FRAMES)).half().cpu().numpy()
        return mels

    def crops(self, shard: Shard, references: npt.NDArray[np.int32], num_frames: int) -> Tensor:
        """Return samples [references, num_frames * HOP_SAMPLES] from the middle of each sentence."""
        ends, length = np.cumsum(shard.num_frames) * FRAME_SAMPLES, num_frames * HOP_SAMPLES
        crops = []
        for i in references:
            sentence = shard.audio[ends[i] - shard.num_frames[i] * FRAME_SAMPLES : ends[i]]
            sentence = np.tile(sentence, -(-length // len(sentence)))
            begin = (len(sentence) - length) // 2
            crops.append(sentence[begin : begin + length])
        return torch.from_numpy(np.stack(crops)).to(self._device).float() * (PEAK / 32768)

    def mels(self, samples: Tensor) -> Tensor:
        """Samples [recordings, n * HOP_SAMPLES] -> mels [recordings, n, NUM_MELS]."""
        padded = F.pad(samples, (PADDING_SAMPLES, PADDING_SAMPLES), mode="reflect")
        spectrum = torch.stft(padded, FFT_SIZE, HOP_SAMPLES, window=self._window, center=False, return_complex=True)
        magnitude = torch.sqrt(torch.view_as_real(spectrum).square().sum(-1) + MAGNITUDE_FLOOR)
        return (self._filters @ magnitude).clamp(min=MEL_FLOOR).log().transpose(1, 2)


def augmented(mels: Tensor) -> Tensor:
    """Change `mels` [recordings, frames, bands], float32, as other rooms, distances and microphones would.

    Many recordings have nothing above some frequency; those of flite above 8 kHz, or less if its formants are low. The
    encoder would learn this edge, so half of the recordings get random values above a random edge.
    """
    number, num_frames, num_bands = mels.shape

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(shape, device=mels.device)

    level = mels + uniform(-2.0, 1.0, number, 1, 1)
    noise = uniform(-11.5, -6.5, number, 1, 1) + uniform(-0.5, 0.5, number, num_frames, num_bands)
    noisy = torch.logaddexp(level, noise)
    top = uniform(-11.0, -4.0, number, 1, 1) + uniform(-1.0, 1.0, number, num_frames, num_bands)
    bands = torch.arange(num_bands, device=mels.device)
    edge = uniform(_band_of(5500.0), _band_of(8500.0), number, 1, 1)
    above = (bands >= edge) & (uniform(0.0, 1.0, number, 1, 1) < 0.5)
    return torch.where(above, top, noisy)


@cache
def _band_of(frequency_hz: float) -> float:
    """The number of the band whose filter has its peak at this frequency."""
    peak_bins = mel_filters(SAMPLE_RATE_HZ, NUM_MELS).argmax(1)
    peaks_hz = peak_bins.double() * (SAMPLE_RATE_HZ / FFT_SIZE)
    return float((peaks_hz < frequency_hz).sum())
