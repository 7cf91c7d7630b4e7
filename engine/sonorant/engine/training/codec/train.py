"""Stage `codec`: encoder and books, then the decoder; leaves `speech_tokenizer` in the published layout. Stage
`decoder`: the decoder of such a codec alone, on from where it is, for the codes that there are."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.model.code2wav import Code2Wav
from sonorant.engine.model.codec_encoder import CodecEncoder
from sonorant.engine.training.clock import Clock
from sonorant.engine.training.codec.encode import KEPT_SHARDS
from sonorant.engine.training.codec.export import write_codec_weights
from sonorant.engine.training.codec.pool import SpeechPool
from sonorant.engine.training.codec.reload import load_codec
from sonorant.engine.training.codec.settings import CodecSettings
from sonorant.engine.training.codec.stage1 import QuantizedEncoder, train_stage1
from sonorant.engine.training.codec.stage2 import TrainedDecoder, initialize_decoder, train_stage2

logger = logging.getLogger(__name__)

MIN_FRAMES = 500  # of speech before training starts
STAGE_1_FILE, STAGE_2_FILE, DECODER_FILE = "codec-stage1.pt", "codec-stage2.pt", "decoder.pt"


@dataclass(frozen=True, slots=True)
class CodecTraining:
    checkpoint: Path
    settings: CodecSettings
    run_folder: Path  # of the states to resume from
    audio: Path
    held_out: frozenset[int]
    device: torch.device
    watch: Callable[[], None]  # called between steps; may raise
    ends_at_s: float  # time.time()
    seed: int

    def clock(self, state_file: str) -> Clock:
        return Clock(self.run_folder / state_file, self.settings.max_steps)

    def export(
        self, encoder: CodecEncoder, books: QuantizedEncoder, code2wav: Code2Wav, decoder: TrainedDecoder | None
    ) -> None:
        write_codec_weights(self.checkpoint / "speech_tokenizer", encoder, books, code2wav, decoder)

    def first_speech(self) -> SpeechPool:
        """As much of it as training needs to start."""
        pool = SpeechPool(self.device, self.settings.max_frames, self.held_out)
        while pool.num_frames < MIN_FRAMES:
            self.watch()
            if pool.poll(self.audio, KEPT_SHARDS) == 0:
                if time.time() > self.ends_at_s:
                    raise TimeoutError(f"no speech in {self.audio} when the time was up")
                time.sleep(0.2)
        return pool


def train_codec(training: CodecTraining, on_codes: Callable[[], None]) -> None:
    """Trains on the shards of audio that there are, and those that come while stage 1 lasts. `on_codes` is called
    once what encodes is in the checkpoint, for good; the decoder follows."""
    torch.manual_seed(training.seed)
    pool = training.first_speech()
    begun_s = time.time()
    config = load_checkpoint(training.checkpoint).codec
    encoder = CodecEncoder(config)

    def poll() -> None:
        training.watch()
        pool.poll(training.audio, 1)

    stage1_ends_s = begun_s + training.settings.stage1_share * (training.ends_at_s - begun_s)
    books = train_stage1(encoder, pool, training.settings, poll, training.clock(STAGE_1_FILE), ends_at_s=stage1_ends_s)
    _round_books(books.first.entries, books.rest.entries)
    code2wav = Code2Wav(config.decoder)
    initialize_decoder(code2wav)
    if not (training.run_folder / STAGE_2_FILE).exists():
        training.export(encoder, books, code2wav, None)
    on_codes()
    _train_stage2(training, encoder, books, code2wav, pool, training.watch, STAGE_2_FILE)


def train_decoder(training: CodecTraining) -> None:
    """As a second stage 2, on all the speech that comes."""
    torch.manual_seed(training.seed)
    encoder, books, code2wav = load_codec(training.checkpoint, training.settings)
    books.to(training.device)
    pool = training.first_speech()

    def poll() -> None:
        training.watch()
        pool.poll(training.audio, 1)

    _train_stage2(training, encoder, books, code2wav, pool, poll, DECODER_FILE)


def _train_stage2(
    training: CodecTraining,
    encoder: CodecEncoder,
    books: QuantizedEncoder,
    code2wav: Code2Wav,
    pool: SpeechPool,
    poll: Callable[[], None],
    state_file: str,
) -> None:
    # One shape and slow convolutions: here it pays to try them all. In stage 1 it took half the time.
    torch.backends.cudnn.benchmark = True

    def export(decoder: TrainedDecoder) -> None:
        training.export(encoder, books, code2wav, decoder)

    clock = training.clock(state_file)
    export(train_stage2(code2wav, books, pool, training.settings, poll, export, clock, ends_at_s=training.ends_at_s))


def _round_books(*tables: torch.Tensor) -> None:
    """To what half precision will store, so that the decoder trains on exactly what ships."""
    for table in tables:
        table.copy_(table.half().float())
