"""Training of a checkpoint that clones: its prompts are those of serving, and its voices come from the references."""

import random

import numpy as np
import pytest
import torch

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.model.mel import MelSpectrogram
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.types import NO_ID, SynthesisParams
from sonorant.training.audio import PEAK
from sonorant.training.codec.export import write_codec_config
from sonorant.training.export import write_config
from sonorant.training.references import REFERENCE_FRAMES, ReferenceMels, augmented
from sonorant.training.settings import TOY_BASE
from sonorant.training.speakers import (
    FORMANTS_RANGE,
    MIXED_F0_SEMITONES,
    PARTS_F0_HZ,
    Speaker,
    draw,
    draw_mixture,
    many_speakers,
)
from sonorant.training.talker.losses import Regularization, TrainedTalker, compute_losses, initialize
from sonorant.training.talker.packing import BatchShape, Mix, Sampler, pack, piece_of
from sonorant.training.talker.rows import END, RowStore
from sonorant.training.teachers.flite import Flite
from sonorant.training.teachers.speech import TeacherUnavailable
from tests.training.spoken_shards import TEXT, on_device, random_codes, shard_of, store_of

SHAPE = BatchShape(num_rows=3, length=256, num_references=3)
MIX = Mix(whole_text=0.5, pairs=0.5, sentences_of_speaker=2)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("base")
    write_codec_config(folder / "speech_tokenizer", TOY_BASE.codec)
    write_config(
        folder, TOY_BASE.talker, TOY_BASE.speakers, (), ("english",), BUILTIN_VOICE_DIR, folder / "speech_tokenizer"
    )
    return load_checkpoint(folder)


@pytest.fixture
def store(checkpoint: Checkpoint) -> RowStore:
    return store_of(checkpoint, shard_of(random_codes(checkpoint, *range(20, 52)), each=4))


@pytest.mark.parametrize("layout", [0, 1])
def test_a_pair_is_the_prompt_with_a_reference_that_serving_assembles(checkpoint: Checkpoint, layout: int) -> None:
    reference, codes = random_codes(checkpoint, 20, 30)
    store = store_of(checkpoint, shard_of([reference, codes], each=2))
    piece = piece_of(store, store.training[1], layout, "english", paired=True)
    index = torch.from_numpy(pack([[piece]], BatchShape(1, piece.length, 1), {0: 0}).index[0]).long()
    tokenizer = Tokenizer.load(BUILTIN_VOICE_DIR)
    params = SynthesisParams(
        sampling=checkpoint.default_sampling,
        language="english",
        non_streaming_mode=bool(layout),
        x_vector=np.zeros(checkpoint.talker.stack.hidden_size, np.float32),
        reference_codes=reference,
        reference_text=TEXT,
    )
    plan = PromptLayout(params, checkpoint, tokenizer).plan(tokenizer.encode(TEXT), ended=True)
    assert plan is not None
    fed = [*plan.trailing, *[checkpoint.text_ids.tts_pad] * 30][:30]
    assert store.text[index].tolist() == [*plan.text_ids, *fed]
    frames = store.frame[index].tolist()
    served = [item if item >= -2 else NO_ID for item in plan.codec_items]  # rows of reference frames have no id
    assert store.control[index].tolist() == [*served, *[NO_ID] * 30]
    assert frames[-50:] == list(range(50))
    assert torch.equal(store.codes[:50], torch.from_numpy(np.concatenate([reference, codes])))
    assert store.target[index].tolist()[-51:] == [*range(50), END]


def test_every_sentence_has_a_reference_of_its_own_speaker_with_another_text(store: RowStore) -> None:
    owner = {mels: speaker for speaker, numbers in store.references.items() for mels in numbers}
    sentence_of_row = {}
    for sentence in store.training:
        for first, length in (*sentence.tails, *sentence.pair_tails):
            sentence_of_row |= dict.fromkeys(range(first, first + length), sentence)
    sampler = Sampler(store, SHAPE, MIX, seed=0)
    for _ in range(20):
        batch = sampler.batch()
        assert batch.index.shape == (3, 256)
        assert batch.references.shape == (3,)
        for number in range(batch.num_sentences):
            rows = batch.index[batch.segment == number]
            [voice] = set(batch.voice[batch.segment == number].tolist())
            sentence = sentence_of_row[int(rows[-1])]
            assert owner[int(batch.references[voice])] == sentence.speaker
            assert int(batch.references[voice]) != sentence.mels


def test_the_speaker_encoder_learns_through_the_talker(checkpoint: Checkpoint, store: RowStore) -> None:
    model = TrainedTalker(checkpoint)
    initialize(model, seed=0)
    batch = on_device(Sampler(store, SHAPE, MIX, seed=0).batch())
    losses = compute_losses(model, store, batch, Regularization(0.0, 0.0, own_frames=8, predictor_frames=0))
    assert model.speaker_encoder is not None
    (gradient,) = torch.autograd.grad(losses.first + losses.predictor, [model.speaker_encoder.blocks[0].conv.weight])
    assert gradient.abs().max() > 0
    store.mels.copy_(store.mels.flip(0))
    exact = Regularization(0.0, 0.0, own_frames=0, predictor_frames=0, augmented_references=False)
    with torch.no_grad():
        here = compute_losses(model, store, batch, exact)
        store.mels.copy_(store.mels.flip(0))
        there = compute_losses(model, store, batch, exact)
    assert abs(here.first - there.first) > 0


def test_reference_mels_are_those_of_serving(checkpoint: Checkpoint) -> None:
    shard = shard_of(random_codes(checkpoint, 60, 9), each=2)
    audio = np.random.default_rng(0).normal(0, 3000, shard.num_frames.sum() * 1920).astype(np.int16)
    shard = type(shard)(**{n: getattr(shard, n) for n in shard.__slots__} | {"audio": audio})
    mels = ReferenceMels(torch.device("cpu"))(shard, np.array([0, 1], np.int32))
    assert mels.shape == (2, REFERENCE_FRAMES, 128)
    begin = (60 * 1920 - REFERENCE_FRAMES * 256) // 2
    served = MelSpectrogram(24000, 128)(
        torch.from_numpy(audio[begin : begin + REFERENCE_FRAMES * 256]) * (PEAK / 32768)
    )
    assert np.abs(mels[0] - served.numpy()).max() < 0.01


def test_augmented_mels_keep_the_speech() -> None:
    torch.manual_seed(0)
    mels = torch.randn(8, 100, 128) * 2 - 5
    heard = augmented(mels)
    assert heard.isfinite().all()
    loud = mels[:, :, :60] > -3
    shift = (heard - mels)[:, :, :60].masked_fill(~loud, 0).sum((1, 2)) / loud.sum((1, 2))
    assert ((heard - mels)[:, :, :60] - shift[:, None, None])[loud].abs().max() < 0.5


def test_speakers_are_named_as_they_are_read() -> None:
    rng = random.Random(0)
    speakers = [draw(rng) for _ in range(200)]
    assert all(Speaker.parse(str(speaker)) == speaker for speaker in speakers)
    assert np.abs([speaker.traits() for speaker in speakers]).max() < 1.05
    assert str(Speaker.parse("slt")) == "slt"
    names = many_speakers(draw, 3, seed=1)
    assert len({next(names) for _ in range(30)}) == 10


def test_mixed_speakers_are_near_the_pitch_of_their_parts_and_none_is_a_part() -> None:
    rng = random.Random(0)
    speakers = [draw_mixture(rng) for _ in range(200)]
    assert len(set(speakers)) == 200
    for speaker in speakers:
        assert Speaker.parse(str(speaker)) == speaker
        assert sum(speaker.shares.values()) == pytest.approx(1)
        assert 2 <= len(speaker.shares) <= 3 and min(speaker.shares.values()) > 0.03
        pitches = np.log2([PARTS_F0_HZ[part] for part in speaker.shares]) @ list(speaker.shares.values())
        assert speaker.f0_hz is not None
        assert abs(12 * (np.log2(speaker.f0_hz) - pitches)) < MIXED_F0_SEMITONES + 0.2


@pytest.mark.parametrize("voice", ["slt", "awb", "kal16"])
def test_a_made_speaker_has_the_pitch_and_the_formants_asked_for(voice: str) -> None:
    try:
        flite = Flite()
    except TeacherUnavailable as error:
        pytest.skip(str(error))
    speeches = {}
    for f0_hz, formants in ((120, 1.0), (190, 1.0), (190, FORMANTS_RANGE[1])):
        (speech,) = flite.speak(["How many more of them are in there now?"], [f"{voice}:{f0_hz}:{formants}:1.00"])
        assert speech is not None
        assert abs(speech.ends_s[-1] - len(speech.samples) / 16000) < 0.2
        speeches[f0_hz, formants] = speech.samples.astype(np.float64)
        assert abs(_pitch_hz(speeches[f0_hz, formants]) / f0_hz - 1) < 0.08
    low, high = (_spectral_center_hz(speeches[190, formants]) for formants in (1.0, FORMANTS_RANGE[1]))
    assert high > 1.08 * low
    (plain,) = flite.speak(["How many more of them are in there now?"], [voice])
    assert plain is not None


def _pitch_hz(samples: np.ndarray) -> float:
    pitches = []
    for begin in range(0, len(samples) - 1024, 256):
        frame = samples[begin : begin + 1024] * np.hanning(1024)
        correlation = np.fft.irfft(np.abs(np.fft.rfft(frame, 2048)) ** 2)
        lag = 50 + int(np.argmax(correlation[50:200]))
        if correlation[0] > 1e7 and correlation[lag] > 0.4 * correlation[0]:
            pitches.append(16000 / lag)
    return float(np.median(pitches))


def _spectral_center_hz(samples: np.ndarray) -> float:
    power = np.abs(np.fft.rfft(samples)) ** 2
    return float((power * np.fft.rfftfreq(len(samples), 1 / 16000)).sum() / power.sum())
