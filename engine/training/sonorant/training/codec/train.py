"""Stage `codec` trains encoder and books, then the decoder, and leaves `speech_tokenizer` in the published layout.
Stage `decoder` trains only the decoder of such a codec further; its codes stay as they are. A decoder that is wider
than the settings' is made as narrow first."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.model.codec.code2wav import Code2Wav
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.training.clock import Clock
from sonorant.training.codec.encode import KEPT_SHARDS
from sonorant.training.codec.export import write_codec_config, write_codec_weights
from sonorant.training.codec.narrow import narrowed
from sonorant.training.codec.pool import SpeechPool
from sonorant.training.codec.reload import load_codec
from sonorant.training.codec.settings import CodecSettings
from sonorant.training.codec.stage1 import QuantizedEncoder, train_stage1
from sonorant.training.codec.stage2 import NEW_DECODER, TRAINED_DECODER, Course, initialize_decoder, train_stage2
from sonorant.training.codec.stage2_step import TrainedDecoder, quantized

logger = logging.getLogger(__name__)

MIN_FRAMES = 500  # of speech before training starts
FITTED_BATCHES = 4  # crops, in batches of stage 2, on which a decoder that loses channels is fitted
STAGE_1_FILE, STAGE_2_FILE, DECODER_FILE = "codec-stage1.pt", "codec-stage2.pt", "decoder.pt"


@dataclass(frozen=True, slots=True)
class CodecTraining:
    checkpoint: Path
    settings: CodecSettings
    run_folder: Path  # has the states to resume from
    audio: Path
    held_out: frozenset[int]
    device: torch.device
    watch: Callable[[], None]  # called between steps; may raise
    ends_at_s: float  # time.time()
    seed: int
    weights_from: Path | None  # a checkpoint whose weights training begins with; None: random ones
    rate: float  # learning rates as a share of the settings'
    eager: bool  # without CUDA graphs

    def clock(self, state_file: str) -> Clock:
        return Clock(self.run_folder / state_file, self.settings.max_steps)

    def export(
        self, encoder: CodecEncoder, books: QuantizedEncoder, code2wav: Code2Wav, decoder: TrainedDecoder | None
    ) -> None:
        write_codec_weights(self.checkpoint / "speech_tokenizer", encoder, books, code2wav, decoder)

    def first_speech(self) -> SpeechPool:
        """Wait until there is enough speech to start training, and return it. Raises TimeoutError after `ends_at_s`."""
        pool = SpeechPool(self.device, self.settings.max_frames, self.held_out)
        while pool.num_frames < MIN_FRAMES:
            self.watch()
            if pool.poll(self.audio, KEPT_SHARDS) == 0:
                if time.time() > self.ends_at_s:
                    raise TimeoutError(
                        f"there was too little speech in {self.audio} when the time was up; train for more minutes"
                    )
                time.sleep(0.2)
        return pool


def train_codec(training: CodecTraining, on_codes: Callable[[], None]) -> None:
    """Train on the shards of audio that are there, and on those that come during stage 1. `on_codes` is called once the
    final encoder and codebooks are in the checkpoint; then the decoder is trained."""
    torch.manual_seed(training.seed)
    pool = training.first_speech()
    begun_s = time.time()
    config = load_checkpoint(training.checkpoint).codec
    if training.weights_from:
        encoder, model, code2wav = load_codec(training.weights_from, training.settings)
        code2wav = _as_narrow_as_wanted(code2wav, model, pool, training.settings)
    else:
        encoder, code2wav = CodecEncoder(config), Code2Wav(config.decoder)
        model = QuantizedEncoder(encoder, training.settings)
        initialize_decoder(code2wav)

    def poll() -> None:
        training.watch()
        pool.poll(training.audio, 1)

    stage1_ends_s = begun_s + training.settings.stage1_share * (training.ends_at_s - begun_s)
    settings = replace(training.settings, stage1_rate=training.rate * training.settings.stage1_rate)
    clock, trained = training.clock(STAGE_1_FILE), training.weights_from is not None
    books = train_stage1(model, pool, settings, poll, clock, ends_at_s=stage1_ends_s, trained=trained)
    _round_books(books.first.entries, books.rest.entries)
    if not (training.run_folder / STAGE_2_FILE).exists():
        training.export(encoder, books, code2wav, None)
    on_codes()
    course = TRAINED_DECODER if trained else NEW_DECODER
    _train_stage2(training, encoder, books, code2wav, pool, training.watch, STAGE_2_FILE, course)


def train_decoder(training: CodecTraining) -> None:
    """Train the decoder further, as in a second stage 2, also on speech that comes during it."""
    torch.manual_seed(training.seed)
    encoder, books, code2wav = load_codec(training.checkpoint, training.settings)
    pool = training.first_speech()
    narrow = _as_narrow_as_wanted(code2wav, books, pool, training.settings)
    if narrow is not code2wav:
        code2wav = narrow
        write_codec_config(training.checkpoint / "speech_tokenizer", training.settings)
        training.export(encoder, books, code2wav, None)
    books.to(training.device)

    def poll() -> None:
        training.watch()
        pool.poll(training.audio, 1)

    _train_stage2(training, encoder, books, code2wav, pool, poll, DECODER_FILE, TRAINED_DECODER)


def _as_narrow_as_wanted(
    code2wav: Code2Wav, books: QuantizedEncoder, pool: SpeechPool, settings: CodecSettings
) -> Code2Wav:
    """Return a decoder on the CPU of the settings' width if this one is wider, otherwise this one."""
    if code2wav.config.decoder_dim <= settings.decoder_dim:
        return code2wav
    logger.info("making the decoder narrower: %d channels, not %d", settings.decoder_dim, code2wav.config.decoder_dim)
    model = TrainedDecoder(code2wav, books).to(pool.device)
    books.to(pool.device)
    frames, crops = settings.stage2_crop
    samples, _, _ = pool.crops(frames, FITTED_BATCHES * crops, at_starts=0.25)
    with torch.no_grad():
        embedded = books.embed(samples)
        _, latents = model(*(quantized(group, embedded) for group in (books.first, books.rest)))
    return narrowed(model.code2wav, settings.decoder_dim, latents).cpu()


def _train_stage2(
    training: CodecTraining,
    encoder: CodecEncoder,
    books: QuantizedEncoder,
    code2wav: Code2Wav,
    pool: SpeechPool,
    poll: Callable[[], None],
    state_file: str,
    course: Course,
) -> None:
    # One shape and slow convolutions: it pays to time all algorithms. In stage 1, that took half of the time.
    torch.backends.cudnn.benchmark = True

    def export(decoder: TrainedDecoder) -> None:
        training.export(encoder, books, code2wav, decoder)

    clock = training.clock(state_file)
    decoder = train_stage2(
        code2wav,
        books,
        pool,
        training.settings,
        poll,
        export,
        clock,
        ends_at_s=training.ends_at_s,
        course=course,
        eager=training.eager,
    )
    export(decoder)


def _round_books(*tables: torch.Tensor) -> None:
    """Round the tables to half precision, so that the decoder trains on exactly the entries that are stored."""
    for table in tables:
        table.copy_(table.half().float())
