"""Runs steps of the training on what is heard: what came nearer to the reference than other takes of the same line in
the same voice becomes likelier (GRPO), and no take much likelier or unlikelier than it was at the start.

Owns parameters, those at the start, their average, and the optimizer. Talker and speaker encoder learn together.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.training.alignment import FRAME_SAMPLES
from sonorant.training.codec.decoder import decode_latents
from sonorant.training.codec.reload import load_code2wav
from sonorant.training.hearing.ear import Ear, Heard
from sonorant.training.hearing.pool import Task
from sonorant.training.hearing.settings import HearingSettings
from sonorant.training.hearing.takes import Prompts, Script, Takes, log_probabilities, speak
from sonorant.training.talker.losses import TrainedTalker, load_talker

AT_ONCE = {"cuda": 96, "cpu": 16}  # takes that are decoded or learnt from at once
AVERAGE_DECAY = 0.98
MAX_GRADIENT_NORM = 1.0
MOST_SEMITONES = 4.0  # off the reference that a take is blamed for
ODD_FRAMES, ODD_DB, MOST_ODD = 8, 0.5, 3.0  # so many frames from the usual length of a line cost so many dB


class HearingTrainer:
    def __init__(self, checkpoint_folder: Path, weights: Path, settings: HearingSettings, device: torch.device) -> None:
        """`checkpoint_folder`: with the codec; `weights`: the file of talker and speaker encoder to begin with."""
        torch.backends.cuda.matmul.allow_tf32 = True
        checkpoint = load_checkpoint(checkpoint_folder)
        self._prompts = Prompts(checkpoint, checkpoint_folder, device)
        self._settings, self._device, self._ear = settings, device, Ear(device)
        self._code2wav = load_code2wav(checkpoint_folder).to(device).requires_grad_(False)
        self._code2wav.quantizer.prepare()
        self.model, self._start = (TrainedTalker(checkpoint).to(device) for _ in range(2))
        tensors = load_file(weights)
        for model in (self.model, self._start):
            load_talker(model, tensors)
        self._start.requires_grad_(False)
        self._parameters = {name: p for name, p in self.model.named_parameters() if name in tensors}
        self.average = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._optimizer = torch.optim.AdamW(self._parameters.values(), betas=(0.9, 0.98), weight_decay=0.0)

    def step(self, task: Task, language: str, learning_rate: float, number: int) -> Mapping[str, float]:
        """Learn from takes of the task; return how far they are off, and the divergence from the start. `number`: of
        the steps before this one."""
        s = self._settings
        voice = torch.arange(len(task.lines), device=self._device).repeat_interleave(s.num_takes)
        script = self._prompts.script(task.lines, language, s.take_frames)[voice]
        x_vectors = _encode(self.model, task.mels)
        takes = speak(self.model, self._prompts, x_vectors.detach()[voice], script, s.temperature)
        heard = self.hear(takes)
        off_db, off_semitones = heard.db_from(task.heard[voice]), heard.semitones_from(task.heard[voice])
        loss = off_db + s.pitch_weight * off_semitones.clamp(max=MOST_SEMITONES) + _oddness(takes, s.num_takes)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        with torch.no_grad():
            before = _encode(self._start, task.mels)
        divergence = self._learn(x_vectors, before, voice, script, takes, _advantages(-loss, s.num_takes))
        decay = min(AVERAGE_DECAY, (number + 2) / (number + 11))  # few steps are soon forgotten
        for name, parameter in self._parameters.items():
            self.average[name].lerp_(parameter.detach(), 1 - decay)
        values = {"loss": loss, "db": off_db, "semitones": off_semitones, "divergence": divergence}
        return {name: float(value.mean()) for name, value in values.items()}

    @torch.no_grad()
    def evaluate(self, task: Task) -> Mapping[str, float]:
        """How far the likeliest takes are off, of the averaged weights."""
        live = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._set(self.average)
        script = self._prompts.script(task.lines, "auto", self._settings.take_frames)
        takes = speak(self.model, self._prompts, _encode(self.model, task.mels), script, temperature=0)
        self._set(live)
        heard = self.hear(takes)
        values = {"db": heard.db_from(task.heard), "semitones": heard.semitones_from(task.heard)}
        return {name: float(value.mean()) for name, value in values.items()}

    @torch.no_grad()
    def hear(self, takes: Takes) -> Heard:
        samples = []
        codes = takes.codes.clamp(max=self._code2wav.quantizer.codebook_size - 1)
        for part in torch.split(codes, AT_ONCE[self._device.type]):
            with self._autocast():
                latents = self._code2wav.quantizer(part).transpose(1, 2)
                samples.append(decode_latents(self._code2wav, latents)[0].float().clamp(-1, 1))
        return self._ear(torch.cat(samples), takes.num_frames * FRAME_SAMPLES)

    def state(self) -> Mapping[str, Any]:
        models = {"model": self.model.state_dict(), "start": self._start.state_dict()}
        return {**models, "average": self.average, "optimizer": self._optimizer.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self._start.load_state_dict(state["start"])
        for name, tensor in state["average"].items():
            self.average[name].copy_(tensor)
        self._optimizer.load_state_dict(state["optimizer"])

    def _learn(
        self, x_vectors: Tensor, before: Tensor, voice: Tensor, script: Script, takes: Takes, advantages: Tensor
    ) -> Tensor:
        """Take an optimizer step; return the divergence from the start per choice. `x_vectors` and those `before`, of
        the start: [voices, hidden]; `voice`: the one of each take."""
        s, leaf = self._settings, x_vectors.detach().requires_grad_()  # the encoder's gradient is computed once
        num_books = takes.codes.shape[2]
        num_choices = takes.chosen.sum() + (num_books - 1) * takes.inside.sum()
        total = torch.zeros((), device=self._device)
        self._optimizer.zero_grad()
        for first_take in range(0, len(voice), AT_ONCE[self._device.type]):
            part = slice(first_take, first_take + AT_ONCE[self._device.type])
            own = takes[part]
            chosen, inside, codes = own.chosen, own.inside, own.codes.flatten(0, 1)
            with self._autocast():
                first, others = self._log_probabilities(self.model, leaf[voice[part]], script[part], own)
                with torch.no_grad():
                    old = self._log_probabilities(self._start, before[voice[part]], script[part], own)
            advantage = advantages[part].repeat_interleave(own.codes.shape[1])
            gained = (advantage * first.gather(1, codes[:, :1])[:, 0])[chosen].sum()
            gained += (advantage[inside, None] * others.gather(2, codes[inside, 1:, None])[..., 0]).sum()
            divergence = _divergence(first[chosen], old[0][chosen]) + _divergence(others, old[1])
            torch.autograd.backward((s.divergence_weight * divergence - gained) / num_choices)
            total += divergence.detach() / num_choices
        torch.autograd.backward(x_vectors, leaf.grad)
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), MAX_GRADIENT_NORM)
        self._optimizer.step()
        return total

    def _log_probabilities(
        self, model: TrainedTalker, x_vectors: Tensor, script: Script, takes: Takes
    ) -> tuple[Tensor, Tensor]:
        return log_probabilities(model, self._prompts, x_vectors, script, takes, self._settings.temperature)

    def _set(self, tensors: Mapping[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.detach().copy_(tensors[name])

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda")


def _encode(model: TrainedTalker, mels: Tensor) -> Tensor:
    assert model.speaker_encoder is not None
    x_vectors: Tensor = model.speaker_encoder(mels)
    return x_vectors


def _oddness(takes: Takes, num_takes: int) -> Tensor:
    """What a take costs, in dB, for hurrying or lingering beside the other takes of its line."""
    lengths = takes.num_frames.view(-1, num_takes).float()
    off = (lengths - lengths.median(1, keepdim=True).values).abs().flatten()
    return ODD_DB * (off / ODD_FRAMES).clamp(max=MOST_ODD)


def _advantages(rewards: Tensor, num_takes: int) -> Tensor:
    """How much better than the other takes of its line each is, in standard deviations of all takes."""
    by_line = rewards.view(-1, num_takes)
    return ((by_line - by_line.mean(1, keepdim=True)) / by_line.std().clamp(min=1e-3)).clamp(-3, 3).flatten()


def _divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Kullback-Leibler divergence of distributions over the last dimension, all together."""
    return (log_p.exp() * (log_p - log_q)).sum()
