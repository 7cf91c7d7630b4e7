"""Stage `codec`: encoder and books, then the decoder; leaves `speech_tokenizer` in the published layout."""

import logging
import time
from pathlib import Path

import torch

from engine.checkpoint import CodecConfig
from engine.model.code2wav import Code2Wav
from engine.model.codec_encoder import CodecEncoder
from engine.training.codec.export import write_codec_weights
from engine.training.codec.pool import SpeechPool
from engine.training.codec.settings import CodecSettings
from engine.training.codec.stage1 import train_stage1
from engine.training.codec.stage2 import initialize_decoder, train_stage2

logger = logging.getLogger(__name__)

MIN_FRAMES = 500  # of speech before training starts
STAGE1_SHARE = 0.22  # of the codec's time


def train_codec(
    config: CodecConfig,
    settings: CodecSettings,
    folder: Path,
    audio_folder: Path,
    held_out: frozenset[int],
    device: torch.device,
    *,
    ends_at_s: float,
    seed: int,
) -> None:
    """Trains on the shards of audio that there are, and those that come while stage 1 lasts."""
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = True  # crops come in few shapes
    pool = SpeechPool(device, settings.max_frames, held_out)
    while pool.num_frames < MIN_FRAMES:
        if pool.poll(audio_folder, 4) == 0:
            if time.time() > ends_at_s:
                raise TimeoutError(f"no speech in {audio_folder} when the time was up")
            time.sleep(0.2)
    begun_s = time.time()
    encoder = CodecEncoder(config)
    stage1_ends_s = begun_s + STAGE1_SHARE * (ends_at_s - begun_s)
    books = train_stage1(encoder, pool, settings, lambda: pool.poll(audio_folder, 1), ends_at_s=stage1_ends_s)
    _round_books(books.first.entries, books.rest.entries)
    code2wav = Code2Wav(config.decoder)
    initialize_decoder(code2wav)
    write_codec_weights(folder, encoder, books, code2wav, None)
    decoder = train_stage2(code2wav, books, pool, settings, ends_at_s=ends_at_s)
    write_codec_weights(folder, encoder, books, code2wav, decoder)


def _round_books(*tables: torch.Tensor) -> None:
    """To what half precision will store, so that the decoder trains on exactly what ships."""
    for table in tables:
        table.copy_(table.half().float())
