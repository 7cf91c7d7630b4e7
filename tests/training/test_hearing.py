"""Training on what is heard: it hears as the judge does, speaks as serving does, and makes better takes likelier."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch
from safetensors.torch import load_file
from torch import Tensor

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.offline import synthesize
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.types import Int16Array
from sonorant.training.evaluation.acoustics import envelope_distance
from sonorant.training.evaluation.clones import voice_of
from sonorant.training.hearing.ear import Ear, Heard
from sonorant.training.hearing.pool import ReferencePool
from sonorant.training.hearing.settings import HearingSettings
from sonorant.training.hearing.takes import Prompts, Takes, log_probabilities, speak
from sonorant.training.hearing.train import STATE_FILE, HearingTraining, train_hearing
from sonorant.training.hearing.trainer import HearingTrainer
from sonorant.training.settings import FULL_BASE
from sonorant.training.shards import Shard, shard_path
from sonorant.training.talker.losses import TrainedTalker, load_talker
from tests.tiny_checkpoint import write_tiny_checkpoint
from tests.training.spoken_shards import TEXT, random_codes, shard_of
from tests.training.vowels import vowel

CPU = torch.device("cpu")
TOY = HearingSettings(num_voices=3, num_takes=8, take_frames=6, line_frames=30, reference_frames=10, max_steps=3)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("base"), "base")


@pytest.fixture
def audio(tiny: Path, tmp_path: Path) -> Path:
    """Ten sentences of a vowel each, at another pitch."""
    checkpoint, length = load_checkpoint(tiny), 12
    shard = shard_of(random_codes(checkpoint, *[length] * 10), each=2)
    spoken = [np.resize(vowel(100 + 10 * i, rate=24000), length * 1920) for i in range(10)]
    values = {name: getattr(shard, name) for name in Shard.__slots__}
    tokens = shard.tokens % 30
    Shard(**values | {"audio": np.concatenate(spoken), "tokens": tokens}).save(shard_path(tmp_path / "audio", 0))
    return tmp_path / "audio"


def same_as_the_judge(samples: Int16Array, in_16_khz: Int16Array) -> None:
    sounds = torch.zeros(2, len(samples) + 24000)
    sounds[:, : len(samples)] = torch.from_numpy(samples / 32768)
    sounds[1] *= 0.1
    heard = Ear(CPU)(sounds, torch.tensor([len(samples), len(samples)]))
    judged = voice_of(in_16_khz)
    for own in heard.envelope.numpy():
        assert envelope_distance(own, judged.envelope) < 0.05  # dB
    assert (heard.semitones - 12 * np.log2(judged.pitch_hz)).abs().max() < 0.1


@pytest.mark.parametrize(("pitch_hz", "ratio"), [(80, 1.0), (131.7, 0.85), (156.125, 1.25), (251.9, 1.2), (300, 1.0)])
def test_a_vowel_is_heard_as_the_judge_hears_it(pitch_hz: float, ratio: float) -> None:
    same_as_the_judge(vowel(pitch_hz, ratio, rate=24000), vowel(pitch_hz, ratio))


def test_speech_is_heard_as_the_judge_hears_it() -> None:
    spoken = synthesize(TEXT, model=BUILTIN_VOICE_DIR, greedy=True)
    samples = (spoken.samples * 32767).astype(np.int16)
    same_as_the_judge(samples, soxr.resample(samples, spoken.sample_rate_hz, 16000))


def test_silence_and_noise_have_no_pitch() -> None:
    sounds = torch.stack([torch.zeros(12000), torch.from_numpy(np.random.default_rng(0).normal(0, 0.1, 12000)).float()])
    heard = Ear(CPU)(sounds, torch.tensor([12000, 12000]))
    assert heard.semitones.isnan().all() and heard.envelope.isfinite().all()
    assert heard.semitones_from(heard).min() > 12
    assert heard.db_from(heard).max() == 0


def test_takes_are_what_serving_says_and_the_likeliest(tmp_path: Path) -> None:
    model_folder = resolve_model("builtin_base")
    checkpoint, lines = load_checkpoint(model_folder), (TEXT, "Yes, please.")
    reference = tmp_path / "reference.wav"
    soundfile.write(reference, np.tile(vowel(140, rate=24000), 4), 24000)
    served = [synthesize(t, model=model_folder, reference=reference, x_vector_only=True, greedy=True) for t in lines]
    tokenizer = Tokenizer.load(model_folder, checkpoint.characters)
    model = TrainedTalker(checkpoint)
    load_talker(model, load_file(model_folder / "model.safetensors"))
    prompts = Prompts(checkpoint, model_folder, CPU)
    x_vectors = torch.stack([torch.from_numpy(s.x_vector) for s in served if s.x_vector is not None])
    script = prompts.script([np.array(tokenizer.encode(t), np.int16) for t in lines], "auto", 60)
    takes = speak(model, prompts, x_vectors, script, temperature=0)
    for codes, num_frames, result in zip(takes.codes, takes.num_frames, served, strict=True):
        assert np.array_equal(codes[:num_frames].numpy(), result.codes)
    with torch.no_grad():
        first, others = log_probabilities(model, prompts, x_vectors, script, takes, temperature=0.7)
    said = takes.codes.flatten(0, 1)
    assert torch.equal(first.argmax(-1)[takes.chosen], said[takes.chosen, 0])
    assert torch.equal(others.argmax(-1), said[takes.inside, 1:])
    assert torch.allclose(others.exp().sum(-1), torch.ones(()))


class HearsCodes(HearingTrainer):
    """Hears, in place of a voice, how many of the first codes are in the lower half of the book."""

    def hear(self, takes: Takes) -> Heard:
        low = (takes.codes[..., 0] < self.model.predictor_config.vocab_size // 2).float()
        return Heard(low.mean(1, keepdim=True), torch.zeros(len(low)))


def test_what_is_nearer_to_the_reference_becomes_likelier(tiny: Path, audio: Path) -> None:
    torch.manual_seed(0)
    trainer = HearsCodes(tiny, tiny / "model.safetensors", TOY, CPU)
    pool = ReferencePool(CPU, TOY, frozenset({0}))
    assert not pool.is_enough
    assert pool.poll(audio) and not pool.poll(audio)
    assert pool.is_enough and (len(pool.training), len(pool.held_out)) == (9, 1)
    task = replace(pool.training.first(3), heard=Heard(torch.ones(3, 1), torch.zeros(3)))
    values = [trainer.step(task, "auto", 3e-3, number) for number in range(10)]
    assert values[0]["divergence"] == pytest.approx(0, abs=1e-4)
    assert values[-1]["divergence"] > 0.01
    first, last = (np.mean([v["db"] for v in part]) for part in (values[:3], values[-3:]))
    assert last < 0.5 * first


class Stopped(Exception):
    pass


@pytest.mark.filterwarnings("ignore")  # of matplotlib
def test_the_included_checkpoint_is_trained_on_and_a_stopped_run_goes_on(tmp_path: Path, audio: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra [train]")
    from sonorant.training import pipeline

    assert FULL_BASE.speakers is not None
    included, state_file = resolve_model("builtin_base"), tmp_path / STATE_FILE
    settings = replace(TOY, num_takes=2, max_steps=3, evaluate_every_s=-1.0)  # saves after every step
    run = pipeline.Run(
        folder=tmp_path,
        settings=replace(FULL_BASE, num_held_out=2, speakers=replace(FULL_BASE.speakers, hearing=settings)),
        stages=("hearing",),
        device=CPU,
        ends_at_s=time.time() + 600,
        teacher_processes=1,
        codec_from=included,
        weights_from=included,
        rate=1.0,
        seed=1,
        eager=False,
    )
    (tmp_path / "text").mkdir()
    shutil.copy(included / "tokenizer.json", tmp_path / "text")

    def weights_after(steps: int) -> dict[str, Tensor]:
        def watch() -> None:
            if state_file.exists() and torch.load(state_file, weights_only=True)["steps"] == steps:
                raise Stopped

        with pytest.raises(Stopped):
            train_hearing(replace(pipeline._hearing_training(run, ()), watch=watch))
        return load_file(run.checkpoint / "model.safetensors")

    pipeline._write_configs(run)
    before, first = load_file(included / "model.safetensors"), weights_after(1)
    changed = {name.partition(".")[0] for name in before if not torch.equal(first[name], before[name])}
    assert first.keys() == before.keys() and changed == {"talker", "speaker_encoder"}
    second = weights_after(2)
    pipeline.run_stages(run)
    third, state = load_file(run.checkpoint / "model.safetensors"), torch.load(state_file, weights_only=True)
    assert state["steps"] == 3
    for old, new in ((first, second), (second, third)):
        assert not all(torch.equal(old[name], new[name]) for name in old)
    start = state["state"]["start"]  # what the weights must not go far from stays what they were before all of it
    assert all(torch.equal(start[name], before[name].float()) for name in before)
    pipeline.run_stages(run)  # nothing is left to do
    assert all(
        torch.equal(tensor, third[name]) for name, tensor in load_file(run.checkpoint / "model.safetensors").items()
    )


def test_too_few_references_are_told(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    training = HearingTraining(
        tiny, TOY, tmp_path, tmp_path / "audio", frozenset(), CPU, lambda: None, 0.0, seed=1, weights_from=None
    )
    with pytest.raises(TimeoutError, match="too few references"):
        train_hearing(training)


@pytest.mark.filterwarnings("ignore")  # of matplotlib
@pytest.mark.parametrize("arguments", ["--stages hearing", "--kind base --stages talker,hearing"])
def test_it_trains_what_another_run_has_left(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra [train]")
    from sonorant.training.__main__ import main

    monkeypatch.setattr("sys.argv", ["training", "--out", str(tmp_path), *arguments.split()])
    with pytest.raises(SystemExit):
        main()
    assert "hearing trains what a run of --kind base has left" in capsys.readouterr().err
