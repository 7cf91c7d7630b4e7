import json
from pathlib import Path

import numpy as np
import torch

from sonorant.engine.model.mel import MelSpectrogram, mel_filters

GOLDEN = json.loads(Path(__file__).with_name("golden_speaker_mel.json").read_text(encoding="utf-8"))


def test_spectrogram_is_the_official_one() -> None:
    n = np.arange(24000)
    signal = 0.5 * np.sin(2 * np.pi * 440 * n / 24000) + 0.1 * np.sin(2 * np.pi * 3000 * n / 24000)
    mel = MelSpectrogram(24000, 128)(torch.from_numpy(signal.astype(np.float32)))
    assert list(mel.T.shape) == GOLDEN["shape_mels_frames"]
    for frame in (0, 46, 92):
        # Not as logarithms: what two tones leave of the other bands is rounding of the FFT, which processors differ in.
        official = np.exp(GOLDEN[f"log_mel_frame_{frame}"])
        np.testing.assert_allclose(mel[frame].exp(), official, rtol=2e-4, atol=2e-7)


def test_filters_are_librosas() -> None:
    filters = mel_filters(24000, 128)
    assert list(filters.shape) == GOLDEN["filterbank_shape"]
    np.testing.assert_allclose(filters.sum(1), GOLDEN["filterbank_row_sums"], atol=1e-7)
