"""Stage `codec`: encoder and books, then the decoder; leaves `speech_tokenizer` in the published layout."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import torch

from engine.checkpoint import CodecConfig
from engine.model.code2wav import Code2Wav
from engine.model.codec_encoder import CodecEncoder
from engine.training.clock import Clock
from engine.training.codec.encode import KEPT_SHARDS
from engine.training.codec.export import write_codec_weights
from engine.training.codec.pool import SpeechPool
from engine.training.codec.settings import CodecSettings
from engine.training.codec.stage1 import train_stage1
from engine.training.codec.stage2 import TrainedDecoder, initialize_decoder, train_stage2

logger = logging.getLogger(__name__)

MIN_FRAMES = 500  # of speech before training starts
STATE_FILES = ("codec-stage1.pt", "codec-stage2.pt")


def train_codec(
    config: CodecConfig,
    settings: CodecSettings,
    folder: Path,
    run_folder: Path,
    audio_folder: Path,
    held_out: frozenset[int],
    device: torch.device,
    on_codes: Callable[[], None],
    watch: Callable[[], None],
    *,
    ends_at_s: float,
    seed: int,
) -> None:
    """Trains on the shards of audio that there are, and those that come while stage 1 lasts. `on_codes` is called
    once what encodes is in `folder`, for good; the decoder follows. `watch` is called between steps and may raise."""
    torch.manual_seed(seed)
    pool = SpeechPool(device, settings.max_frames, held_out)
    while pool.num_frames < MIN_FRAMES:
        watch()
        if pool.poll(audio_folder, KEPT_SHARDS) == 0:
            if time.time() > ends_at_s:
                raise TimeoutError(f"no speech in {audio_folder} when the time was up")
            time.sleep(0.2)
    begun_s = time.time()
    stage1, stage2 = (run_folder / name for name in STATE_FILES)
    encoder = CodecEncoder(config)

    def poll() -> None:
        watch()
        pool.poll(audio_folder, 1)

    def clock(state_file: Path) -> Clock:
        return Clock(state_file, settings.max_steps)

    stage1_ends_s = begun_s + settings.stage1_share * (ends_at_s - begun_s)
    books = train_stage1(encoder, pool, settings, poll, clock(stage1), ends_at_s=stage1_ends_s)
    _round_books(books.first.entries, books.rest.entries)
    # Stage 2 has one shape and slow convolutions: there it pays to try them all. In stage 1 it took half the time.
    torch.backends.cudnn.benchmark = True
    code2wav = Code2Wav(config.decoder)
    initialize_decoder(code2wav)

    def export(decoder: TrainedDecoder | None) -> None:
        write_codec_weights(folder, encoder, books, code2wav, decoder)

    if not stage2.exists():
        export(None)
    on_codes()
    export(train_stage2(code2wav, books, pool, settings, watch, export, clock(stage2), ends_at_s=ends_at_s))


def _round_books(*tables: torch.Tensor) -> None:
    """To what half precision will store, so that the decoder trains on exactly what ships."""
    for table in tables:
        table.copy_(table.half().float())
